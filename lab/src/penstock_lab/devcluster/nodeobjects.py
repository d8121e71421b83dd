"""Node objects: capacity and conditions."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock import errors
from penstock_lab.devcluster import podnetwork
from penstock_lab.devcluster.discovery import VERSION
from penstock_lab.devcluster.objectstore import now
from penstock_lab.devcluster.statuses import Json


class NodeSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    cpus: int
    memory_mb: int
    gpus: int = 0
    labels: dict[str, str] = {}


def read_nodes(path: Path) -> list[NodeSpec]:
    """Read the nodes file; raises UsageError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[NodeSpec])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        hint = 'expected is [{"name": "n1", "cpus": 8, "memory_mb": 32768, "gpus": 4, "labels": {}}]'
        raise errors.UsageError(f"nodes file {path}: {error}", hint=hint) from error


def node_object(spec: NodeSpec) -> Json:
    gpus = {"nvidia.com/gpu": str(spec.gpus)} if spec.gpus else {}
    room = {
        "cpu": str(spec.cpus),
        "memory": f"{spec.memory_mb}Mi",
        "pods": "110",
        "ephemeral-storage": "100Gi",
    }
    labels = {"kubernetes.io/hostname": spec.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    addresses = {"InternalIP": podnetwork.NODE_ADDRESS, "Hostname": spec.name}
    unknown = ("bootID", "machineID", "systemUUID", "kubeProxyVersion")
    return {
        "metadata": {"name": spec.name, "labels": {**labels, **spec.labels}},
        "spec": {},
        "status": {
            "capacity": {**room, **gpus},
            "allocatable": {**room, **gpus},
            "conditions": [condition(ready=True)],
            "features": {"supplementalGroupsPolicy": True},
            "addresses": [{"type": kind, "address": address} for kind, address in addresses.items()],
            "nodeInfo": {
                "kubeletVersion": VERSION["gitVersion"],
                "operatingSystem": "linux",
                "architecture": "amd64",
                "osImage": "this host",
                "kernelVersion": "this host's",
                "containerRuntimeVersion": "penstock://1",
                **dict.fromkeys(unknown, ""),
            },
        },
    }


def condition(*, ready: bool) -> Json:
    """The Ready condition; Unknown for a node that is cut off."""
    words = {"status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    if not ready:
        words = {"status": "Unknown", "reason": "NodeStatusUnknown"}
        words["message"] = "Kubelet stopped posting node status."
    return {"type": "Ready", **words, "lastHeartbeatTime": now(), "lastTransitionTime": now()}


def is_ready(node: Json) -> bool:
    conditions = node["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
