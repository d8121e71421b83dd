"""Access to a cluster by its kubeconfig, for the steps of `lab up`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import msgspec

from penstock import errors
from penstock.install import kubeadmin
from penstock.kube import kinds, kubeconfig

FIELD_MANAGER = "penstock-lab"


def cluster(config: Path) -> kubeadmin.Cluster:
    return kubeadmin.Cluster(access_by(config), manager=FIELD_MANAGER)


def access_by(config: Path) -> kubeconfig.Access:
    """The kubeconfig's content, cached until the file changes: parsing takes longer than a request."""
    try:
        return _access(config, config.stat().st_mtime_ns)
    except OSError:
        return kubeconfig.load(config)  # raises with the reason


@functools.lru_cache(maxsize=32)
def _access(config: Path, _changed: int) -> kubeconfig.Access:
    return kubeconfig.load(config)


def token(config: Path, *, namespace: str, account: str, seconds: int) -> str:
    """Request a token for the service account."""
    wanted = {"spec": {"expirationSeconds": seconds}}
    answer = cluster(config).ask(
        lambda kube: kube.create(
            kinds.SERVICE_ACCOUNTS, wanted, namespace=namespace, name=account, sub="token"
        )
    )
    return str(msgspec.json.decode(answer)["status"]["token"])


def node_complaint(config: Path, name: str) -> str:
    """Why the node cannot take pods; empty if it can."""
    try:
        answer = cluster(config).ask(lambda kube: kube.get(kinds.NODES, name=name))
    except errors.KubeNotFound:
        return "its node is not registered yet"
    except (errors.KubeError, errors.UsageError) as error:
        return error.message
    return ready_complaint(msgspec.json.decode(answer))


def ready_complaint(node: dict[str, Any]) -> str:
    """The message of the node's Ready condition if it is not True."""
    for condition in node.get("status", {}).get("conditions", ()):
        if condition["type"] == "Ready":
            return "" if condition["status"] == "True" else str(condition.get("message") or "not Ready")
    return "has no Ready condition"
