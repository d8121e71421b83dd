"""Both views of every node, side by side: what each side believes, what is taken, and where they disagree."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.doctor import kubernetes
from penstock.doctor.live import Live
from penstock.kube import reading
from penstock.model import resources


class Amounts(msgspec.Struct, frozen=True):
    """CPUs, MiB and GPUs, as people count them."""

    cpus: float
    memory_mb: int
    gpus: int


class NodeSides(msgspec.Struct, frozen=True):
    """One node; None where a side does not know it."""

    name: str
    slurm_state: str
    kubernetes_state: str
    slurm_total: Amounts | None
    kubernetes_total: Amounts | None
    allocated: Amounts | None
    """What Slurm gave to jobs."""
    requested: Amounts
    """What pods of jobs ask for."""
    foreign: Amounts
    """What other pods ask for."""
    free: Amounts | None
    """What is left on both sides."""
    disagreements: tuple[str, ...]


def look(live: Live) -> tuple[NodeSides, ...]:
    """Every node that Slurm or Kubernetes knows; where they disagree, they do so at a second look, too."""
    _ = live.pods  # before Slurm: a job that starts in between has no pod yet
    found = _all_sides(live)
    if any(node.disagreements for node in found):
        live.look_again()
        found = _all_sides(live)
    return found


def _all_sides(live: Live) -> tuple[NodeSides, ...]:
    names = sorted({*live.slurm_nodes, *live.kube_nodes})
    return tuple(_sides(live, name) for name in names)


def _sides(live: Live, name: str) -> NodeSides:
    slurm, kube = live.slurm_nodes.get(name), live.kube_nodes.get(name)
    claimed = kubernetes.claimed(live.site, slurm) if slurm else None
    given = kubernetes.allocated(live.site, slurm) if slurm else None
    can_give = live.gpus_only(reading.amount(kube.status.allocatable)) if kube else None
    ours, foreign = live.requested(name, ours=True), live.requested(name, ours=False)
    state = "-" if kube is None else "Ready" if kube.ready else "NotReady"
    if kube is not None and kube.spec.unschedulable:
        state += ",cordoned"
    return NodeSides(
        name=name,
        slurm_state=slurm.state if slurm else "-",
        kubernetes_state=state,
        slurm_total=_amounts(claimed),
        kubernetes_total=_amounts(can_give),
        allocated=_amounts(given),
        requested=_known(ours),
        foreign=_known(foreign),
        free=_amounts(_free(claimed, given, can_give, ours + foreign)),
        disagreements=tuple(_disagreements(live, name, claimed, given, can_give, ours)),
    )


def _free(
    claimed: resources.Amount | None,
    given: resources.Amount | None,
    can_give: resources.Amount | None,
    requested: resources.Amount,
) -> resources.Amount | None:
    """The smaller of what each side has left."""
    if claimed is None or given is None or can_give is None:
        return None
    return (claimed - given).smallest(can_give - requested)


def _disagreements(
    live: Live,
    name: str,
    claimed: resources.Amount | None,
    given: resources.Amount | None,
    can_give: resources.Amount | None,
    ours: resources.Amount,
) -> Iterator[str]:
    bridged = name in live.bridged_nodes
    if claimed is None and bridged:
        yield "Slurm does not know it"
    if can_give is None and bridged:
        yield "Kubernetes does not know it"
    if not bridged or claimed is None or given is None or can_give is None:
        return
    for short in claimed.shortages(can_give):
        yield f"Slurm claims {short.what} {short.needed}, Kubernetes can give {short.free}"
    for short in ours.shortages(given):
        yield f"pods of jobs ask for {short.what} {short.needed}, Slurm gave {short.free}"
    slurm, kube = live.slurm_nodes[name], live.kube_nodes[name]
    usable = not any(word in slurm.state for word in ("DOWN", "DRAIN", "FAIL", "NOT_RESPONDING"))
    takes_pods = kube.ready and not kube.spec.unschedulable
    if usable != takes_pods:
        yield "only Slurm would use it" if usable else "only Kubernetes would use it"


def _amounts(amount: resources.Amount | None) -> Amounts | None:
    return _known(amount) if amount is not None else None


def _known(amount: resources.Amount) -> Amounts:
    return Amounts(amount.millicpus / 1000, amount.memory // 2**20, amount.all_gpus)
