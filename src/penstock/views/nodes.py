"""Both views of every node, side by side: what each side believes, what is taken, and where they disagree."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock import errors, wellknown
from penstock.doctor import checks
from penstock.doctor.live import Live
from penstock.model.resources import Amount
from penstock.views import threads


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


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """Every node that Slurm or Kubernetes knows."""

    version: int = wellknown.JSON_VERSION
    nodes: tuple[NodeSides, ...]


async def nodes(live: Live) -> Nodes:
    """Where the sides disagree, they do so at a second look, too."""
    try:
        return Nodes(nodes=await threads.run(_look, live))
    except errors.PenstockError as error:
        error.hint = checks.remedy(error)
        raise


def _look(live: Live) -> tuple[NodeSides, ...]:
    _ = live.pods  # before Slurm: a job that starts in between has no pod yet
    found = _all_sides(live)
    if any(node.disagreements for node in found):
        live.look_again()
        found = _all_sides(live)
    return found


def _all_sides(live: Live) -> tuple[NodeSides, ...]:
    return tuple(_sides(live, name) for name in sorted({*live.slurm_nodes, *live.kube_nodes}))


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
        requested=_known(ours),
        foreign=_known(foreign),
        free=_amounts(free),
        disagreements=tuple(_disagreements(live, name, ours)) if name in live.bridged_nodes else (),
    )


def _disagreements(live: Live, name: str, ours: Amount) -> Iterator[str]:
    slurm, kube, can_give = live.slurm_nodes.get(name), live.kube_nodes.get(name), live.allocatable(name)
    if slurm is None:
        yield "Slurm does not know it"
    if kube is None:
        yield "Kubernetes does not know it"
    if slurm is None or kube is None or can_give is None:
        return
    for short in slurm.amount.shortages(can_give):
        yield f"Slurm claims {short.what} {short.needed}, Kubernetes can give {short.free}"
    for short in ours.shortages(slurm.used):
        yield f"pods of jobs ask for {short.what} {short.needed}, Slurm gave {short.free}"
    takes_pods = kube.ready and not kube.spec.unschedulable
    if slurm.is_out_of_service == takes_pods:
        yield "only Kubernetes would use it" if takes_pods else "only Slurm would use it"


def _amounts(amount: Amount | None) -> Amounts | None:
    return _known(amount) if amount is not None else None


def _known(amount: Amount) -> Amounts:
    return Amounts(amount.millicpus / 1000, amount.memory // 2**20, amount.all_gpus)
