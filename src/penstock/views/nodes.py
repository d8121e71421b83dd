"""Every node in Slurm and in Kubernetes: states, amounts, and where the two sides disagree."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock import errors, wellknown
from penstock.doctor import checks
from penstock.doctor.live import Live
from penstock.model.resources import Amount
from penstock.views import threads


class Amounts(msgspec.Struct, frozen=True):
    cpus: float
    memory_mb: int
    gpus: int


class NodeSides(msgspec.Struct, frozen=True):
    """One node; None for a side that does not know it."""

    name: str
    slurm_state: str
    kubernetes_state: str
    slurm_total: Amounts | None
    kubernetes_total: Amounts | None
    allocated: Amounts | None
    """Allocated to jobs by Slurm."""
    requested: Amounts
    """Requested by pods of jobs."""
    foreign: Amounts
    """Requested by other pods."""
    free: Amounts | None
    """Free on both sides."""
    disagreements: tuple[str, ...]


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    version: int = wellknown.JSON_VERSION
    nodes: tuple[NodeSides, ...]


async def nodes(live: Live) -> Nodes:
    """All nodes; disagreements persist across two snapshots."""
    try:
        return Nodes(nodes=await threads.run(_snapshot, live))
    except errors.PenstockError as error:
        error.hint = checks.remedy(error)
        raise


def _snapshot(live: Live, *, again: bool = True) -> tuple[NodeSides, ...]:
    _ = live.pods  # before Slurm: a job that starts in between has no pod yet
    found = tuple(_sides(live, name) for name in sorted({*live.slurm_nodes, *live.kube_nodes}))
    if again and any(node.disagreements for node in found):
        live.look_again()
        return _snapshot(live, again=False)
    return found


def _sides(live: Live, name: str) -> NodeSides:
    slurm, kube, can_give = live.slurm_nodes.get(name), live.kube_nodes.get(name), live.allocatable(name)
    ours, foreign = live.requested(name, ours=True), live.requested(name, ours=False)
    state = "-" if kube is None else "Ready" if kube.ready else "NotReady"
    if kube is not None and kube.spec.unschedulable:
        state += ",cordoned"
    free = None  # the smaller of what each side has left
    if slurm is not None and can_give is not None:
        free = (slurm.amount - slurm.used).smallest(can_give - ours - foreign)
    return NodeSides(
        name=name,
        slurm_state=slurm.state if slurm else "-",
        kubernetes_state=state,
        slurm_total=_amounts(slurm.amount if slurm else None),
        kubernetes_total=_amounts(can_give),
        allocated=_amounts(slurm.used if slurm else None),
        requested=_to_amounts(ours),
        foreign=_to_amounts(foreign),
        free=_amounts(free),
        disagreements=tuple(_disagreements(live, name, ours)) if name in live.bridged_nodes else (),
    )


def _disagreements(live: Live, name: str, ours: Amount) -> Iterator[str]:
    slurm, kube, can_give = live.slurm_nodes.get(name), live.kube_nodes.get(name), live.allocatable(name)
    if slurm is None:
        yield "unknown to Slurm"
    if kube is None:
        yield "unknown to Kubernetes"
    if slurm is None or kube is None or can_give is None:
        return
    for short in slurm.amount.shortages(can_give):
        yield f"{short.what}: {short.needed} in Slurm, {short.free} allocatable in Kubernetes"
    for short in ours.shortages(slurm.used):
        yield f"{short.what}: {short.needed} requested by pods of jobs, {short.free} allocated by Slurm"
    takes_pods = kube.ready and not kube.spec.unschedulable
    if slurm.is_out_of_service == takes_pods:
        yield "out of service in Slurm only" if takes_pods else "out of service in Kubernetes only"


def _amounts(amount: Amount | None) -> Amounts | None:
    return _to_amounts(amount) if amount is not None else None


def _to_amounts(amount: Amount) -> Amounts:
    return Amounts(amount.millicpus / 1000, amount.memory // 2**20, amount.all_gpus)
