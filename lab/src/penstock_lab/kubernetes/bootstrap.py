"""Objects made in a running API server: roles, and node status that the kubelets cannot set.

A kubelet refuses a loopback address for its node, and knows no GPUs without a device plugin; both are patched
into the node's status here. A restarted kubelet forgets the GPUs, so this is done at every `up`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock import errors, wellknown
from penstock.kube import client, kinds
from penstock.render import rbac
from penstock_lab import ports
from penstock_lab.kubernetes import api, authority, layout

ROLES = "cluster roles"
NODES = "nodes"
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
TRIES = 20
TRY_AGAIN_SECONDS = 0.2
READ = ["get", "list", "watch"]


def grant_roles(cluster: layout.Cluster) -> str:
    """penstockd gets exactly the rights it needs; viewers may read nodes and namespaces."""
    manifests = (
        rbac.render_role(),
        rbac.render_binding(rbac.user(authority.PENSTOCKD)),
        rbac.render_user_role(),
        viewer_role(),
        rbac.render_binding(rbac.user(authority.VIEWER), role=authority.VIEWER),
    )
    for manifest in manifests:
        api.cluster(cluster.admin_kubeconfig).apply(manifest)
    return "granted"


def viewer_role() -> dict[str, Any]:
    """The role of every user of the machine."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": authority.VIEWER},
        "rules": [{"apiGroups": [""], "resources": ["nodes", "namespaces"], "verbs": READ}],
    }


def complete_nodes(cluster: layout.Cluster) -> str:
    """Set addresses and GPUs of every node and remove its startup taint."""
    api.cluster(cluster.admin_kubeconfig).ask(lambda kube: _complete(kube, cluster.machines))
    return f"{len(cluster.machines)} ready"


async def _complete(kube: client.KubeClient, machines: Sequence[layout.Machine]) -> None:
    for machine in machines:
        await _remove_taint(kube, machine.name)
        status = {"status": node_status(machine.name, gpus=machine.spec.gpus)}
        await kube.patch(kinds.NODES, status, name=machine.name, sub="status")


async def _remove_taint(kube: client.KubeClient, name: str) -> None:
    """Patches only the resourceVersion that was read: otherwise a taint that the node controller has just
    removed could come back, and stay for minutes.
    """
    for tries_left in reversed(range(TRIES)):
        node = msgspec.json.decode(await kube.get(kinds.NODES, name=name))
        seen = {"resourceVersion": node["metadata"]["resourceVersion"]}
        body = {"metadata": seen, "spec": {"taints": without_taint(node)}}
        try:
            await kube.patch(kinds.NODES, body, name=name)
            return
        except errors.KubeConflict:
            if not tries_left:
                raise
        await asyncio.sleep(TRY_AGAIN_SECONDS)


def without_taint(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The node's taints without the one for the cloud provider."""
    return [taint for taint in node["spec"].get("taints", []) if taint["key"] != UNINITIALIZED]


def node_status(name: str, *, gpus: int) -> dict[str, Any]:
    """What is added to the status from the kubelet."""
    amount = {wellknown.GPU_RESOURCE: str(gpus)}
    addresses = [{"type": "InternalIP", "address": ports.LOOPBACK}, {"type": "Hostname", "address": name}]
    return {"addresses": addresses, "capacity": amount, "allocatable": amount}
