"""penstockd's kubeconfig: created once from its account's token, without the administrator's permissions."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from penstock import errors
from penstock.install import facts, kubeadmin
from penstock.nas import atomic
from penstock.render import manifests
from penstock.site.kubeobjects import ACCOUNT
from penstock.site.schema import Site

TOKEN_SECONDS = 30.0
POLL_SECONDS = 0.2


def ensure(site: Site, cluster: kubeadmin.Cluster) -> bool:
    """Create the file if it is missing; True if it was created."""
    path = Path(site.kubernetes.kubeconfig)
    if not is_missing(site):
        return False
    text = render(_cluster(site), _token(site, cluster))
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(path, text, mode=0o600, owner=(facts.uid_of(site.slurm.user), 0))
    return True


def render(cluster: dict[str, Any], token: str) -> bytes:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": ACCOUNT, "user": {"token": token}}],
        "contexts": [{"name": "penstock", "context": {"cluster": "cluster", "user": ACCOUNT}}],
        "current-context": "penstock",
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def is_ours(path: Path) -> bool:
    """Whether the file is exactly what we would write with its cluster and token."""
    try:
        content = path.read_bytes()
        found = msgspec.json.decode(content)
        return content == render(found["clusters"][0]["cluster"], found["users"][0]["user"]["token"])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError):
        return False


def is_missing(site: Site) -> bool:
    return site.kubernetes.access != kubeadmin.IN_CLUSTER and not Path(site.kubernetes.kubeconfig).exists()


def planned(site: Site) -> Iterator[tuple[str, str, str]]:
    """Lines of a plan for creating it."""
    if is_missing(site):
        secret = f"Secret {site.kubernetes.namespace}/{ACCOUNT}"
        yield "add", "object", f"{secret} (a token that never expires; deleting the Secret revokes it)"
        yield "add", "file", f"{site.kubernetes.kubeconfig} (for penstockd, with the token of {secret})"


def _token(site: Site, cluster: kubeadmin.Cluster) -> str:
    """Create the account's Secret and wait for the cluster to write the token into it."""
    secret = manifests.token_secret(ACCOUNT, site.kubernetes.namespace)
    cluster.apply(secret)
    deadline = time.monotonic() + TOKEN_SECONDS
    while time.monotonic() < deadline:
        data = (cluster.get(secret) or {}).get("data") or {}
        if data.get("token"):
            return base64.b64decode(data["token"]).decode()
        time.sleep(POLL_SECONDS)
    raise errors.InstallError(
        f"the cluster issued no token for the account {ACCOUNT} within {TOKEN_SECONDS:g} s",
        hint=f"Create {site.kubernetes.kubeconfig} for penstockd yourself.",
    )


def _cluster(site: Site) -> dict[str, Any]:
    """The cluster entry of the administrator's kubeconfig, with its CA certificate inlined."""
    path = kubeadmin.admin_kubeconfig(site)
    try:
        document = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
        contexts = {entry["name"]: entry["context"] for entry in document["contexts"]}
        wanted = contexts[site.kubernetes.context or document["current-context"]]["cluster"]
        found = dict(next(entry["cluster"] for entry in document["clusters"] if entry["name"] == wanted))
        authority = found.pop("certificate-authority", None)
        if authority:
            content = (path.parent / authority).read_bytes()
            found["certificate-authority-data"] = base64.b64encode(content).decode()
    except (OSError, YAMLError, KeyError, TypeError, StopIteration) as error:
        raise errors.UsageError(f"{path} is not a usable kubeconfig: {error}") from error
    return found
