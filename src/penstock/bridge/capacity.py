"""Does every node of an allocation really have the room? Pure functions over nodes, pods and reservations.

Taken on a node is what is reserved for jobs, plus every pod that has not ended and whose job has no
reservation: everybody else's, and ours of jobs that are being cleaned up. A pod that is being deleted still
takes its room until it is gone. Where pods of a job ask for more than its reservation, the pods count: of a
job that is ending Slurm does not tell the GPUs any more, and its reservation may have been read anew since.
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
    """Why the job cannot start now, one for each node that cannot hold it; empty when it can."""
    own = allocation.identity.job_id
    pods = list(filter(rights.takes_room, pods))
    others, beyond = _unreserved_by_node(pods, reserved), _beyond(pods, reserved, besides=own)
    found = (
        _refusal(
            share,
            allocation,
            nodes,
            others.get(share.node, []),
            reserved.reserved_on(share.node, besides=own) + beyond.get(share.node, resources.Amount()),
        )
        for share in allocation.shares
    )
    return tuple(one for one in found if one is not None)


def free(
    nodes: Mapping[str, types.Node], pods: Iterable[types.Pod], reserved: jobstore.Store
) -> dict[str, resources.Amount]:
    """What is left of every node that Kubernetes can use now; less than nothing where others took more."""
    pods = list(filter(rights.takes_room, pods))
    others, beyond = _unreserved_by_node(pods, reserved), _beyond(pods, reserved, besides=0)
    left = {}
    for node in nodes.values():
        if node.ready and not node.spec.unschedulable:
            name = node.metadata.name
            taken = reserved.reserved_on(name, besides=0) + beyond.get(name, resources.Amount())
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


def _beyond(
    pods: Iterable[types.Pod], reserved: jobstore.Store, *, besides: int
) -> dict[str, resources.Amount]:
    """What pods of jobs take of each node over and above their jobs' reservations."""
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
