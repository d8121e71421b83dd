"""Reads a kubeconfig: server, trusted CA and credentials. Supports what a daemon can use: certificates and
tokens.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import logging
import os
import ssl
import tempfile
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from penstock import errors
from penstock.kube import addresses

log = logging.getLogger(__name__)


class TokenFile:
    """A token that is renewed in its file, so it is read every time it is needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = ""

    def read(self) -> str:
        """The token. UsageError if there is none."""
        try:
            found = self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise errors.UsageError(f"cannot read the token in {self._path}: {error}") from error
        if not found:
            raise errors.UsageError(f"{self._path} is empty: a token is expected")
        self._last = found
        return found

    def now(self) -> str:
        """The token, or the last one read: a file that is missing for a moment must not end anything."""
        try:
            return self.read()
        except errors.UsageError as error:
            if not self._last:
                raise
            log.warning("%s", error.message)
            return self._last


@dataclasses.dataclass(frozen=True, kw_only=True)
class Access:
    """How to reach and authenticate to an API server."""

    server: str
    token: str = ""
    token_file: TokenFile | None = None  # used instead of `token`: renewed in its file
    tls: ssl.SSLContext | None = None
    origin: str = ""
    """Where the credentials were read, for errors shown to whoever can renew them; empty to omit."""
    renew: str = ""  # how to get new credentials

    @property
    def bearer(self) -> str:
        """The current token; empty for none."""
        return self.token_file.now() if self.token_file is not None else self.token


def load(path: Path, *, context: str = "") -> Access:
    """Access by the named context, or by the file's current one."""
    document = _read(path)
    chosen = context or str(document.get("current-context") or "")
    link = _named(document, "contexts", "context", chosen, path)
    cluster = _named(document, "clusters", "cluster", str(link.get("cluster")), path)
    user = _named(document, "users", "user", str(link.get("user")), path)
    if "exec" in user or "auth-provider" in user:
        raise errors.UsageError(
            f"{path}: user of context {chosen!r} logs in through a plugin, which a daemon cannot use",
            hint="give penstockd a service account token or a client certificate",
        )
    server = str(cluster.get("server") or "").rstrip("/")
    if not server:
        raise errors.UsageError(f"{path}: the cluster of context {chosen!r} has no server")
    try:
        scheme = addresses.parse(server).scheme
    except errors.UsageError as error:
        raise errors.UsageError(f"{path}: {error.message}", hint=error.hint) from error
    return Access(
        server=server,
        token=str(user.get("token") or ""),
        token_file=_token_file(user, path),
        tls=_tls(cluster, user, path) if scheme == "https" else None,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        document = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.UsageError(f"cannot read kubeconfig {path}: {error.strerror}") from error
    except (YAMLError, ValueError) as error:
        raise errors.UsageError(f"{path} is not a kubeconfig: {error}") from error
    if not isinstance(document, dict):
        raise errors.UsageError(f"{path} is not a kubeconfig: a mapping is expected")
    return document


def _named(document: dict[str, Any], plural: str, singular: str, name: str, path: Path) -> dict[str, Any]:
    entries = document.get(plural) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise errors.UsageError(f"{path}: {plural} must be a list of mappings")
    for entry in entries:
        if entry.get("name") == name:
            found = entry.get(singular) or {}
            if not isinstance(found, dict):
                raise errors.UsageError(f"{path}: {singular} {name!r} must be a mapping")
            return found
    raise errors.UsageError(f"{path}: no {singular} named {name!r}")


def _token_file(user: dict[str, Any], path: Path) -> TokenFile | None:
    if user.get("token") or not user.get("tokenFile"):
        return None
    found = TokenFile(path.parent / str(user["tokenFile"]))
    found.read()
    return found


def _tls(cluster: dict[str, Any], user: dict[str, Any], path: Path) -> ssl.SSLContext:
    context = _trusting(_bytes(cluster, "certificate-authority", path), path)
    unchecked = cluster.get("insecure-skip-tls-verify") or False
    if not isinstance(unchecked, bool):
        raise errors.UsageError(f"{path}: insecure-skip-tls-verify must be true or false, not {unchecked!r}")
    if unchecked:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = _bytes(user, "client-certificate", path), _bytes(user, "client-key", path)
    if certificate and not key:
        raise errors.UsageError(f"{path}: there is a client-certificate and no client-key")
    if certificate:
        _load_client_certificate(context, certificate, key, path)
    return context


def _trusting(authority: bytes, path: Path) -> ssl.SSLContext:
    """Trusts this CA or, without one, those of the machine."""
    if not authority:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=authority.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise errors.UsageError(
            f"{path}: certificate-authority contains no PEM certificates: {error}"
        ) from error


def _bytes(entry: dict[str, Any], name: str, path: Path) -> bytes:
    """Inline `name-data`, or the content of the file `name`."""
    try:
        if entry.get(f"{name}-data"):
            return base64.b64decode(str(entry[f"{name}-data"]), validate=True)
        if entry.get(name):
            return (path.parent / str(entry[name])).read_bytes()
    except (OSError, binascii.Error) as error:
        raise errors.UsageError(f"{path}: cannot read {name}: {error}") from error
    return b""


def _load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, path: Path) -> None:
    """The ssl module reads only files; this one has a name only during the call."""
    descriptor, name = tempfile.mkstemp(prefix="penstock-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate + b"\n" + key)
        context.load_cert_chain(name, password="")  # else OpenSSL prompts for the passphrase
    except (ssl.SSLError, ValueError) as error:
        raise errors.UsageError(
            f"{path}: client-certificate and client-key are not a PEM certificate and its key: {error}",
            hint="A daemon cannot use a key with a passphrase.",
        ) from error
    finally:
        Path(name).unlink()
