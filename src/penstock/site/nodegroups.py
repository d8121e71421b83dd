"""Node groups → nodes: host lists from the file; labels and sizes from Kubernetes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from penstock import errors, wellknown
from penstock.model import cluster as model
from penstock.model import resources
from penstock.site import crosschecks
from penstock.site.parts import NodeGroup
from penstock.site.scalars import mebibytes
from penstock.site.schema import Site

HOSTNAME = "kubernetes.io/hostname"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """A node of Kubernetes."""

    name: str
    labels: Mapping[str, str]
    allocatable: resources.Amount


def other_name(host: str, members: Iterable[Member]) -> str:
    """Kubernetes' name of this host if it differs: by hostname label or domain; empty if ambiguous."""
    found = [
        each.name for each in members if host in (each.labels.get(HOSTNAME), each.name.partition(".")[0])
    ]
    return found[0] if len(found) == 1 and found[0] != host else ""


def needs_kubernetes(site: Site) -> bool:
    """Whether nodes or their sizes come from Kubernetes."""
    return any(group.selector is not None or group.size != "given" for group in site.node_groups.values())


def groups(site: Site, members: Iterable[Member] = ()) -> dict[str, tuple[model.NodeSpec, ...]]:
    """The nodes of every group. Raises UsageError if Kubernetes lacks a node whose size is needed."""
    known = {member.name: member for member in members}
    return {
        name: tuple(_nodes(name, group, known, resource=gpu_resource(site, group)))
        for name, group in site.node_groups.items()
    }


def gpu_resource(site: Site, group: NodeGroup) -> str:
    gpu = site.gpus.get(group.gpu_type or "")
    return gpu.resource if gpu else wellknown.GPU_RESOURCE


def _nodes(
    name: str, group: NodeGroup, known: Mapping[str, Member], *, resource: str
) -> list[model.NodeSpec]:
    names = crosschecks.nodes_of(group) if group.nodes is not None else _selected(name, group, known)
    sizes = (_size(name, group, node, known, resource=resource) for node in names)
    return [_node(group, names[number], number, size) for number, size in enumerate(sizes)]


def _selected(name: str, group: NodeGroup, known: Mapping[str, Member]) -> tuple[str, ...]:
    wanted = (group.selector or {}).items()
    found = tuple(sorted(member.name for member in known.values() if wanted <= member.labels.items()))
    if not found:
        labels = ",".join(f"{key}={value}" for key, value in wanted)
        raise errors.UsageError(
            f"node group {name}: no Kubernetes node has the labels {labels}",
            hint="See `kubectl get nodes --show-labels`.",
        )
    return found


def _node(group: NodeGroup, node: str, number: int, size: tuple[int, int, int]) -> model.NodeSpec:
    cpus, memory, gpus = size
    slurmd = group.slurmd
    return model.NodeSpec(
        name=node,
        port=slurmd.first_port + number if slurmd else 0,
        cpus=max(cpus - group.reserved.cpus, 1),
        memory_mb=max(memory - mebibytes(group.reserved.memory), 1),
        gpus=gpus,
        gpu_type=group.gpu_type or "",
        features=group.features,
        host=slurmd.host if slurmd else "",
        address=slurmd.address if slurmd else "",
    )


def _size(
    name: str, group: NodeGroup, node: str, known: Mapping[str, Member], *, resource: str
) -> tuple[int, int, int]:
    """CPUs, MiB and GPUs."""
    if group.size == "given":
        return group.cpus or 1, mebibytes(group.memory or "1Mi"), group.gpus
    if node not in known:
        raise errors.UsageError(
            f"node group {name}: Kubernetes has no node {node}",
            hint="Correct `nodes`, or give `cpus` and `memory` instead of `size: kubernetes`.",
        )
    amount = known[node].allocatable
    gpus = amount.gpus if resource == wellknown.GPU_RESOURCE else amount.count_of(resource)
    return amount.millicpus // 1000, amount.memory // 2**20, gpus
