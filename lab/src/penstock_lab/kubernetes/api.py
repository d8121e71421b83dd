"""A few calls of the Kubernetes API for setting a cluster up and looking at it: a step of `lab up` patches a
node or applies a role and is done.
"""

from __future__ import annotations

import functools
import urllib.parse
from pathlib import Path
from typing import Any

from penstock import errors
from penstock.install import access as cluster_access
from penstock.kube import kubeconfig

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
FIELD_MANAGER = "penstock-lab"


def request(config: Path, method: str, path: str, *, body: Any = None, kind: str = "application/json") -> Any:
    """The answer, decoded; KubeError with the API's own words when it refuses."""
    return ask(access_by(config), method, path, body=body, kind=kind)


def access_by(config: Path) -> kubeconfig.Access:
    """What the file says, read again when it has changed: reading it takes longer than the API's answer."""
    try:
        return _access(config, config.stat().st_mtime_ns)
    except OSError:
        return kubeconfig.load(config)  # which says what is wrong


@functools.lru_cache(maxsize=32)
def _access(config: Path, _changed: int) -> kubeconfig.Access:
    return kubeconfig.load(config)


def ask(
    access: kubeconfig.Access, method: str, path: str, *, body: Any = None, kind: str = "application/json"
) -> Any:
    """The same for one who has read it."""
    return cluster_access.Cluster(access).request(method, path, body=body, kind=kind)


def apply(config: Path, path: str, manifest: Any) -> Any:
    """Make the object what the manifest says, whether it was there or not."""
    query = urllib.parse.urlencode({"fieldManager": FIELD_MANAGER, "force": "true"})
    return request(config, "PATCH", f"{path}?{query}", body=manifest, kind=APPLY)


def node_complaint(config: Path, name: str) -> str:
    """Why the node cannot take pods; nothing when it can."""
    try:
        node = request(config, "GET", f"/api/v1/nodes/{name}")
    except errors.KubeNotFound:
        return "its node has not come up yet"
    except (errors.KubeError, errors.UsageError) as error:
        return error.message
    return ready_complaint(node)


def ready_complaint(node: dict[str, Any]) -> str:
    """What the node's Ready condition says if it is not True."""
    for condition in node.get("status", {}).get("conditions", ()):
        if condition["type"] == "Ready":
            return "" if condition["status"] == "True" else str(condition.get("message") or "not Ready")
    return "says nothing of being Ready"
