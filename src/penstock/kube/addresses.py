"""An API server's address in parts, for code that opens its own connections.

The path matters: proxies in front of several clusters route by it
(https://rancher.example.org/k8s/clusters/c-1).
"""

from __future__ import annotations

import dataclasses
import urllib.parse

from penstock import errors

_PORTS = {"https": 443, "http": 80}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Address:
    """Host, port, and the prefix of every API path."""

    scheme: str
    host: str  # IPv6 addresses without brackets
    port: int
    prefix: str = ""

    @property
    def authority(self) -> str:
        """For the Host header."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(server: str) -> Address:
    """Parse a kubeconfig's `server`. Raises UsageError if it is not a usable address."""
    try:
        return _parse(server)
    except ValueError as error:
        raise errors.UsageError(f"{server!r} is not the address of an API server: {error}") from error


def _parse(server: str) -> Address:
    url = urllib.parse.urlsplit(server)
    if url.scheme not in _PORTS:
        raise ValueError("it must begin with https:// or http://")
    if not url.hostname:
        raise ValueError("it names no host")
    port = url.port if url.port is not None else _PORTS[url.scheme]
    return Address(scheme=url.scheme, host=url.hostname, port=port, prefix=url.path.rstrip("/"))
