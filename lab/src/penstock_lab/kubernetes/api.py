"""The cluster of a kubeconfig, for setting it up and looking at it: a step of `lab up` patches a node or
applies a role and is done.
"""

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
    """With the rights that the file gives."""
    return kubeadmin.Cluster(access_by(config), manager=FIELD_MANAGER)


def access_by(config: Path) -> kubeconfig.Access:
    """What the file says, read again when it has changed: reading it takes longer than the API's answer."""
    try:
        return _access(config, config.stat().st_mtime_ns)
    except OSError:
        return kubeconfig.load(config)  # which says what is wrong


@functools.lru_cache(maxsize=32)
def _access(config: Path, _changed: int) -> kubeconfig.Access:
    return kubeconfig.load(config)


def token(config: Path, *, namespace: str, account: str, seconds: int) -> str:
    """A token of the service account that lasts so long."""
    wanted = {"spec": {"expirationSeconds": seconds}}
    answer = cluster(config).ask(
        lambda kube: kube.create(
            kinds.SERVICE_ACCOUNTS, wanted, namespace=namespace, name=account, sub="token"
        )
    )
    return str(msgspec.json.decode(answer)["status"]["token"])


def node_complaint(config: Path, name: str) -> str:
    """Why the node cannot take pods; nothing when it can."""
    try:
        answer = cluster(config).ask(lambda kube: kube.get(kinds.NODES, name=name))
    except errors.KubeNotFound:
        return "its node has not come up yet"
    except (errors.KubeError, errors.UsageError) as error:
        return error.message
    return ready_complaint(msgspec.json.decode(answer))


def ready_complaint(node: dict[str, Any]) -> str:
    """What the node's Ready condition says if it is not True."""
    for condition in node.get("status", {}).get("conditions", ()):
        if condition["type"] == "Ready":
            return "" if condition["status"] == "True" else str(condition.get("message") or "not Ready")
    return "says nothing of being Ready"
