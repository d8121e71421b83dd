"""What a running API server is told: roles, and what kubelets cannot say of their nodes themselves.

A kubelet refuses a loopback address as its node's, and knows no GPUs without a device plugin; both are
written into the node's status here. A kubelet that starts anew forgets the GPUs, so this is done at every
`up`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from penstock import errors, wellknown
from penstock.render import rbac
from penstock_lab import ports
from penstock_lab.kubernetes import api, authority, layout

ROLES = "cluster roles"
NODES = "nodes"
RBAC_PATH = "/apis/rbac.authorization.k8s.io/v1"
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
TRIES = 20
TRY_AGAIN_SECONDS = 0.2
READ = ["get", "list", "watch"]


def grant_roles(cluster: layout.Cluster) -> str:
    """penstockd gets what it needs and no more; whoever is nobody in particular sees that there are nodes."""
    manifests = (
        rbac.render_role(),
        rbac.render_binding(rbac.user(authority.PENSTOCKD)),
        rbac.render_user_role(),
        viewer_role(),
        rbac.render_binding(rbac.user(authority.VIEWER), role=authority.VIEWER),
    )
    for manifest in manifests:
        plural = f"{manifest['kind'].lower()}s"
        path = f"{RBAC_PATH}/{plural}/{manifest['metadata']['name']}"
        api.apply(cluster.admin_kubeconfig, path, manifest)
    return "granted"


def viewer_role() -> dict[str, Any]:
    """What everybody on the machine may see of the lab's cluster."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": authority.VIEWER},
        "rules": [{"apiGroups": [""], "resources": ["nodes", "namespaces"], "verbs": READ}],
    }


def complete_nodes(cluster: layout.Cluster) -> str:
    """Addresses, GPUs and no taint, for every node."""
    for machine in cluster.machines:
        path = f"/api/v1/nodes/{machine.name}"
        _remove_taint(cluster.admin_kubeconfig, path)
        status = {"status": node_status(machine.name, gpus=machine.spec.gpus)}
        api.request(cluster.admin_kubeconfig, "PATCH", f"{path}/status", body=status, kind=api.MERGE)
    return f"{len(cluster.machines)} ready"


def _remove_taint(config: Path, path: str) -> None:
    """Not when the node has changed meanwhile: a taint that its controller has just removed would come back,
    and might stay for minutes.
    """
    for tries_left in reversed(range(TRIES)):
        node = api.request(config, "GET", path)
        seen = {"resourceVersion": node["metadata"]["resourceVersion"]}
        body = {"metadata": seen, "spec": {"taints": without_taint(node)}}
        try:
            api.request(config, "PATCH", path, body=body, kind=api.MERGE)
            return
        except errors.KubeConflict:
            if not tries_left:
                raise
        time.sleep(TRY_AGAIN_SECONDS)


def without_taint(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The node's taints but the one that waits for a cloud."""
    return [taint for taint in node["spec"].get("taints", []) if taint["key"] != UNINITIALIZED]


def node_status(name: str, *, gpus: int) -> dict[str, Any]:
    """What is added to the status that the kubelet writes."""
    amount = {wellknown.GPU_RESOURCE: str(gpus)}
    addresses = [{"type": "InternalIP", "address": ports.LOOPBACK}, {"type": "Hostname", "address": name}]
    return {"addresses": addresses, "capacity": amount, "allocatable": amount}
