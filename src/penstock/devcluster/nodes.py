"""Node objects: what a node has, whether it is ready, and how much of it is taken."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from penstock import errors
from penstock.devcluster import quantities, times
from penstock.devcluster.quantities import Amounts
from penstock.devcluster.statuses import Json


class NodeSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of the nodes file."""

    name: str
    cpus: int
    memory_mb: int
    gpus: int = 0
    labels: dict[str, str] = {}


def read_nodes(path: Path) -> list[NodeSpec]:
    """The nodes file; a mistake in it is one clear line."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[NodeSpec])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        hint = 'expected is [{"name": "n1", "cpus": 8, "memory_mb": 32768, "gpus": 4, "labels": {}}]'
        raise errors.UsageError(f"nodes file {path}: {error}", hint=hint) from error


def node_object(spec: NodeSpec) -> Json:
    """The Node as it registers itself."""
    capacity = {
        "cpu": str(spec.cpus),
        "memory": f"{spec.memory_mb}Mi",
        "pods": "110",
        "ephemeral-storage": "100Gi",
    }
    if spec.gpus:
        capacity["nvidia.com/gpu"] = str(spec.gpus)
    labels = {"kubernetes.io/hostname": spec.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "metadata": {"name": spec.name, "labels": {**labels, **spec.labels}},
        "spec": {},
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "conditions": conditions(ready=True, old=[]),
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": spec.name},
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.32.0-devcluster",
                "operatingSystem": "linux",
                "architecture": "amd64",
                "osImage": "this host",
                "kernelVersion": "this host's",
                "containerRuntimeVersion": "penstock://1",
                "bootID": "",
                "machineID": "",
                "systemUUID": "",
                "kubeProxyVersion": "",
            },
        },
    }


def conditions(*, ready: bool, old: list[Json]) -> list[Json]:
    """The node's conditions; one that does not change keeps its transition time."""
    found = [
        _condition(
            "MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"
        )
    ]
    found.append(
        _condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure")
    )
    if ready:
        found.append(_condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"))
    else:
        found.append(
            _condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        )
    before = {one["type"]: one for one in old}
    for one in found:
        same = before.get(one["type"], {})
        if same.get("status") == one["status"]:
            one.update(
                lastTransitionTime=same["lastTransitionTime"], lastHeartbeatTime=same["lastHeartbeatTime"]
            )
    return found


def _condition(kind: str, status: str, reason: str, message: str) -> Json:
    now = times.now()
    base = {"type": kind, "status": status, "reason": reason, "message": message}
    return {**base, "lastHeartbeatTime": now, "lastTransitionTime": now}


def allocatable(node: Json) -> Amounts:
    return {
        name: quantities.parse(value) for name, value in (node["status"].get("allocatable") or {}).items()
    }


@dataclass
class Ledger:
    """How much of every node is taken, kept up to date by whoever books and releases."""

    _taken: dict[str, dict[str, Amounts]] = field(default_factory=dict)
    _sums: dict[str, Amounts] = field(default_factory=dict)

    def book(self, node: str, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._taken.setdefault(node, {}):
            return
        amounts = {**quantities.of_pod(pod), "pods": 1000}
        self._taken[node][uid] = amounts
        self._sums[node] = quantities.add([self._sums.get(node, {}), amounts])

    def release(self, node: str, uid: str) -> None:
        amounts = self._taken.get(node, {}).pop(uid, None)
        if amounts:
            negative = {name: -value for name, value in amounts.items()}
            self._sums[node] = quantities.add([self._sums[node], negative])

    def missing(self, node: Json, pod: Json) -> tuple[str, int, int, int] | None:
        """The first resource that the pod does not find on the node: name, wanted, taken, there."""
        there, taken = allocatable(node), self._sums.get(node["metadata"]["name"], {})
        for name, wanted in {**quantities.of_pod(pod), "pods": 1000}.items():
            if wanted and taken.get(name, 0) + wanted > there.get(name, 0):
                return name, wanted, taken.get(name, 0), there.get(name, 0)
        return None


def selects(pod: Json, node: Json) -> bool:
    """Does the pod's nodeSelector allow this node?"""
    labels: dict[str, Any] = node["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in (pod["spec"].get("nodeSelector") or {}).items())
