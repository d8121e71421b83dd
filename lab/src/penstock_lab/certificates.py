"""Keys, tokens and kubeconfigs of the dev cluster.

One self-signed certificate for 127.0.0.1 (kubectl sends no token over plain http), and one token each for
root, penstockd and read-only users. They are made once: a repair must not lock anybody out.
"""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

from penstock_lab import files, paths, subprocesses

DAYS = "3650"


def ensure(place: paths.LabPaths, *, port: int, penstockd_owner: files.Owner) -> None:
    """Make the missing files."""
    ensure_certificate(key=place.tls_key, certificate=place.tls_certificate)
    if place.tokens.exists():
        return
    tokens = {role: secrets.token_hex(20) for role in ("admin", "penstockd", "viewer")}
    certificate = place.tls_certificate.read_bytes()

    def config(role: str) -> str:
        return render_kubeconfig(port=port, certificate=certificate, user=role, token=tokens[role])

    files.write(place.admin_kubeconfig, config("admin"), mode=0o600)
    files.write(place.penstockd_kubeconfig, config("penstockd"), mode=0o600, owner=penstockd_owner)
    files.write(place.viewer_kubeconfig, config("viewer"))
    files.write(place.tokens, render_tokens(tokens), mode=0o600)


def render_tokens(tokens: dict[str, str]) -> str:
    """The dev cluster's token file; only viewers are read-only."""
    groups = {"viewer": "viewer"}
    return "".join(f"{token},{role},{groups.get(role, 'admin')}\n" for role, token in tokens.items())


def render_kubeconfig(*, port: int, certificate: bytes, user: str, token: str) -> str:
    authority = base64.b64encode(certificate).decode()
    return f"""\
apiVersion: v1
kind: Config
clusters:
- name: lab
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority-data: {authority}
users:
- name: {user}
  user:
    token: "{token}"
contexts:
- name: lab
  context:
    cluster: lab
    user: {user}
current-context: lab
"""


def ensure_certificate(*, key: Path, certificate: Path) -> None:
    """Make a self-signed server certificate for 127.0.0.1 and its key, unless both exist."""
    if certificate.exists() and key.exists():
        return
    argv = (
        "openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-days", DAYS, "-subj", "/CN=penstock-lab",
        "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
        "-keyout", "-", "-out", "-",
    )  # fmt: skip
    made = subprocesses.run(argv).stdout
    files.write(key, _block(made, "PRIVATE KEY"), mode=0o600)
    files.write(certificate, _block(made, "CERTIFICATE"))


def _block(pem: str, kind: str) -> str:
    begin, end = f"-----BEGIN {kind}-----", f"-----END {kind}-----"
    return pem[pem.index(begin) : pem.index(end) + len(end)] + "\n"
