"""Where an API server is, taken apart: what connects by itself needs host, port and path one by one.

The path matters: proxies in front of several clusters tell them apart by it
(https://rancher.example.org/k8s/clusters/c-1).
"""

from __future__ import annotations

import dataclasses
import urllib.parse

from penstock import errors

_PORTS = {"https": 443, "http": 80}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Address:
    """Host and port, and the path before every path of the API."""

    scheme: str
    host: str
    """An IPv6 address without its brackets."""
    port: int
    prefix: str = ""

    @property
    def authority(self) -> str:
        """As a Host header names it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(server: str) -> Address:
    """A kubeconfig's `server`; UsageError when nobody can be asked there."""
    try:
        return _parse(server)
    except ValueError as error:
        raise errors.UsageError(f"{server!r} is no address of an API server: {error}") from error


def _parse(server: str) -> Address:
    url = urllib.parse.urlsplit(server)
    if url.scheme not in _PORTS:
        raise ValueError("it must begin with https:// or http://")
    if not url.hostname:
        raise ValueError("it names no host")
    port = url.port if url.port is not None else _PORTS[url.scheme]
    return Address(scheme=url.scheme, host=url.hostname, port=port, prefix=url.path.rstrip("/"))
