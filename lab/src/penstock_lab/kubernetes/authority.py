"""Certificates and tokens of the cluster: one CA, one token file.

etcd and the kubelets accept only clients with a certificate of this CA, since any user of the machine can
reach loopback. Everything is made once and kept: a repair must not lock anybody out.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from penstock_lab import certificates, files, subprocesses
from penstock_lab.kubernetes import layout

DAYS = "3650"
AUTHORITY = "authority"
ETCD = "etcd"
APISERVER = "apiserver"
API_TO_KUBELET = "apiserver-kubelet-client"
SERVICE_ACCOUNTS = "service-accounts"
CONTROLLERS = "controllers"
SCHEDULER = "scheduler"
PENSTOCKD = "penstockd"
VIEWER = "viewer"
ADMIN = "admin"


def ensure(cluster: layout.Cluster, *, penstockd_owner: files.Owner) -> str:
    """Make the missing files."""
    files.directory(cluster.etc, mode=0o700)
    _make_certificate(cluster.key(AUTHORITY), cluster.authority, subject="/CN=penstock-lab-authority")
    for name in (ETCD, APISERVER):
        _ensure_signed(cluster, name, subject=f"/CN={name}", names="IP:127.0.0.1,DNS:localhost")
    _ensure_signed(cluster, API_TO_KUBELET, subject="/O=system:masters/CN=kube-apiserver", names="")
    if not cluster.key(SERVICE_ACCOUNTS).exists():
        made = subprocesses.run(
            ("openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048")
        )
        files.write(cluster.key(SERVICE_ACCOUNTS), made.stdout, mode=0o600)
    if not cluster.tokens.exists():
        _make_tokens(cluster, penstockd_owner)
    return "ready"


def identities(cluster: layout.Cluster) -> dict[str, tuple[str, str]]:
    """(user, group) in the API by component, node or role."""
    own = {
        ADMIN: ("admin", "system:masters"),
        CONTROLLERS: ("system:kube-controller-manager", ""),
        SCHEDULER: ("system:kube-scheduler", ""),
        PENSTOCKD: (PENSTOCKD, ""),
        VIEWER: (VIEWER, ""),
    }
    nodes = {node.name: (f"system:node:{node.name}", "system:nodes") for node in cluster.nodes}
    return own | nodes


def render_tokens(tokens: Mapping[str, str], who: Mapping[str, tuple[str, str]]) -> str:
    """The API server's token file: token, user, uid, groups."""
    return "".join(f'{token},{who[role][0]},{role},"{who[role][1]}"\n' for role, token in tokens.items())


def _make_tokens(cluster: layout.Cluster, penstockd_owner: files.Owner) -> None:
    who = identities(cluster)
    tokens = {role: secrets.token_hex(20) for role in who}
    for role in tokens:
        _write_kubeconfig(cluster, role, tokens[role], penstockd_owner)
    files.write(cluster.tokens, render_tokens(tokens, who), mode=0o600)


def _write_kubeconfig(cluster: layout.Cluster, role: str, token: str, penstockd_owner: files.Owner) -> None:
    content = certificates.render_kubeconfig(
        port=cluster.api_port, certificate=cluster.authority.read_bytes(), user=role, token=token
    )
    if role == PENSTOCKD:
        files.write(cluster.penstockd_kubeconfig, content, mode=0o600, owner=penstockd_owner)
    elif role == VIEWER:
        files.write(cluster.viewer_kubeconfig, content)
    else:
        place = cluster.admin_kubeconfig if role == ADMIN else cluster.kubeconfig(role)
        files.write(place, content, mode=0o600)


def _ensure_signed(cluster: layout.Cluster, name: str, *, subject: str, names: str) -> None:
    """Make a key and a certificate signed by the CA, for clients and servers."""
    options = (f"subjectAltName={names}",) if names else ()
    usage = ("extendedKeyUsage=clientAuth,serverAuth", "basicConstraints=critical,CA:FALSE", *options)
    extensions = tuple(word for option in usage for word in ("-addext", option))
    signer = ("-CA", str(cluster.authority), "-CAkey", str(cluster.key(AUTHORITY)))
    _make_certificate(cluster.key(name), cluster.certificate(name), *signer, *extensions, subject=subject)


def _make_certificate(key: Path, certificate: Path, *options: str, subject: str) -> None:
    """Make a key and its certificate, unless it exists; the certificate appears last."""
    if certificate.exists():
        return
    unfinished = certificate.with_suffix(".new")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    new = ("openssl", "req", "-x509", "-nodes", *curve, "-days", DAYS, "-subj", subject)
    subprocesses.run((*new, *options, "-keyout", str(key), "-out", str(unfinished)))
    key.chmod(0o600)
    unfinished.replace(certificate)
