"""Free room on nodes, computed from nodes, pods and reservations without any I/O.

A node's reservations are taken, and the requests of every pod that has not ended and whose job has no
reservation: other people's pods, and ours of jobs that are being cleaned up. Terminating pods count until
they are gone. If a job's pods request more than its reservation, the pods count: Slurm omits the GPUs of a
COMPLETING job, whose reservation may have been read again since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.bridge import jobstore
from penstock.judge import rights
from penstock.kube import podview, types
from penstock.model import jobs, resources
from penstock.model.reasons import Refusal, RefusalKind


def refusals(
    allocation: jobs.Allocation,
    *,
    nodes: Mapping[str, types.Node],
    pods: Iterable[types.Pod],
    reserved: jobstore.Store,
) -> tuple[Refusal, ...]:
    """Why the job cannot start now: one refusal per node without room; empty if it can start."""
    own = allocation.identity.job_id
    pods = list(filter(rights.takes_room, pods))
    others, excess = _unreserved_by_node(pods, reserved), _excess(pods, reserved, besides=own)
    found = (
        _refusal(
            share,
            allocation,
            nodes,
            others.get(share.node, []),
            reserved.reserved_on(share.node, besides=own) + excess.get(share.node, resources.Amount()),
        )
        for share in allocation.shares
    )
    return tuple(one for one in found if one is not None)


def free(
    nodes: Mapping[str, types.Node], pods: Iterable[types.Pod], reserved: jobstore.Store
) -> dict[str, resources.Amount]:
    """Free room of every schedulable node; negative where a node is overcommitted."""
    pods = list(filter(rights.takes_room, pods))
    others, excess = _unreserved_by_node(pods, reserved), _excess(pods, reserved, besides=0)
    left = {}
    for node in nodes.values():
        if node.ready and not node.spec.unschedulable:
            name = node.metadata.name
            taken = reserved.reserved_on(name, besides=0) + excess.get(name, resources.Amount())
            taken += sum(map(podview.requested, others.get(name, [])), start=resources.Amount())
            left[name] = podview.amount(node.status.allocatable) - taken
    return left


def _unreserved_by_node(pods: Iterable[types.Pod], reserved: jobstore.Store) -> dict[str, list[types.Pod]]:
    by_node: dict[str, list[types.Pod]] = {}
    for pod in pods:
        job_id = podview.job_id(pod)
        if job_id is None or reserved.reservation(job_id) is None:
            by_node.setdefault(pod.spec.node_name, []).append(pod)
    return by_node


def _excess(
    pods: Iterable[types.Pod], reserved: jobstore.Store, *, besides: int
) -> dict[str, resources.Amount]:
    """Requests of jobs' pods that exceed the jobs' reservations, by node."""
    taken: dict[tuple[str, int], resources.Amount] = {}
    for pod in pods:
        job_id, node = podview.job_id(pod), pod.spec.node_name
        if job_id is not None and job_id != besides and reserved.reservation(job_id) is not None:
            taken[node, job_id] = taken.get((node, job_id), resources.Amount()) + podview.requested(pod)
    found: dict[str, resources.Amount] = {}
    for (node, job_id), amount in taken.items():
        more = amount.beyond(reserved.share_of(job_id, node))
        found[node] = found.get(node, resources.Amount()) + more
    return found


def _refusal(
    share: jobs.NodeShare,
    allocation: jobs.Allocation,
    nodes: Mapping[str, types.Node],
    others: list[types.Pod],
    held: resources.Amount,
) -> Refusal | None:
    node = nodes.get(f"/{share.node}")
    if node is None:
        return Refusal(kind=RefusalKind.NODE_UNKNOWN, node=share.node)
    if not node.ready:
        return Refusal(kind=RefusalKind.NODE_NOT_READY, node=share.node)
    if node.spec.unschedulable:
        return Refusal(kind=RefusalKind.NODE_CORDONED, node=share.node)
    free = podview.amount(node.status.allocatable) - held
    for pod in others:
        if not podview.belongs_to(pod, allocation.identity):
            free -= podview.requested(pod)
    shortages = share.amount.shortages(free)
    return _no_room(share.node, shortages[0], others) if shortages else None


def _no_room(node: str, shortage: resources.Shortage, others: list[types.Pod]) -> Refusal:
    holders = (pod.metadata for pod in others if _takes(pod, shortage.what))
    return Refusal(
        kind=RefusalKind.NO_ROOM,
        node=node,
        resource=shortage.what,
        wanted=shortage.needed,
        free=shortage.free,
        held_by=tuple(sorted(f"{meta.namespace}/{meta.name}" for meta in holders)),
    )


def _takes(pod: types.Pod, what: str) -> bool:
    amount = podview.requested(pod)
    usual = {"gpu": amount.gpus, "cpu": amount.millicpus, "memory": amount.memory}
    return usual.get(what, amount.count_of(what)) > 0
