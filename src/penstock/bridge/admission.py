"""Does every node of an allocation really have the room? A pure function over what is known of nodes, pods
and promises.

Taken on a node is what the ledger holds for jobs, plus every pod that has not ended and whose job holds
nothing: everybody else's, and ours of jobs that are being cleaned up. A pod that is being deleted still takes
its room until it is gone. Where pods of a job ask for more than is held for it, the pods count: of a job that
is ending Slurm does not tell the GPUs any more, and its promise may have been read anew since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.bridge import ledger
from penstock.kube import reading, types
from penstock.model import jobs, resources

NAMED_HOLDERS = 3  # how many pods a refusal names


def refusals(
    allocation: jobs.Allocation,
    *,
    nodes: Mapping[str, types.Node],
    pods: Iterable[types.Pod],
    promised: ledger.Ledger,
) -> tuple[str, ...]:
    """Why the job cannot start now, a line per node; empty when it can."""
    pods = [pod for pod in pods if pod.spec.node_name and not reading.is_over(pod)]
    by_node = _unpromised_by_node(pods, promised)
    found = (
        _refusal(
            share,
            allocation,
            nodes,
            by_node.get(share.node, []),
            promised.held_on(share.node, besides=allocation.identity.job_id)
            + _beyond_promises(share.node, pods, promised, besides=allocation.identity.job_id),
        )
        for share in allocation.shares
    )
    return tuple(line for line in found if line)


def _unpromised_by_node(pods: Iterable[types.Pod], promised: ledger.Ledger) -> dict[str, list[types.Pod]]:
    by_node: dict[str, list[types.Pod]] = {}
    for pod in pods:
        job_id = reading.job_id(pod)
        if job_id is None or promised.of(job_id) is None:
            by_node.setdefault(pod.spec.node_name, []).append(pod)
    return by_node


def _beyond_promises(
    node: str, pods: Iterable[types.Pod], promised: ledger.Ledger, *, besides: int
) -> resources.Amount:
    """What pods of jobs take there over and above what is held for their jobs."""
    taken: dict[int, resources.Amount] = {}
    for pod in pods:
        job_id = reading.job_id(pod)
        if pod.spec.node_name == node and job_id not in (None, besides) and promised.of(job_id) is not None:
            taken[job_id] = taken.get(job_id, resources.Amount()) + reading.requested(pod)
    more = (amount.beyond(promised.share_of(job_id, node)) for job_id, amount in taken.items())
    return sum(more, start=resources.Amount())


def _refusal(
    share: jobs.NodeShare,
    allocation: jobs.Allocation,
    nodes: Mapping[str, types.Node],
    others: list[types.Pod],
    held: resources.Amount,
) -> str:
    node = nodes.get(f"/{share.node}")
    if node is None:
        return f"waits for node {share.node}: Kubernetes does not know it"
    if not node.ready:
        return f"waits for node {share.node}: not Ready in Kubernetes"
    if node.spec.unschedulable:
        return f"waits for node {share.node}: cordoned in Kubernetes"
    free = reading.amount(node.status.allocatable) - held
    for pod in others:
        if not reading.belongs_to(pod, allocation.identity):
            free -= reading.requested(pod)
    return _in_words(share, share.amount.shortages(free), others)


def _in_words(
    share: jobs.NodeShare, shortages: tuple[resources.Shortage, ...], others: list[types.Pod]
) -> str:
    if not shortages:
        return ""
    first = shortages[0]
    text = f"waits for {first.what} on {share.node}: {first.free} free of {first.needed} needed"
    holders = sorted(
        f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in others if _takes(pod, first.what)
    )
    if holders:
        more = f" and {len(holders) - NAMED_HOLDERS} more" if len(holders) > NAMED_HOLDERS else ""
        text += f", held by {', '.join(holders[:NAMED_HOLDERS])}{more}"
    return text


def _takes(pod: types.Pod, what: str) -> bool:
    amount = reading.requested(pod)
    usual = {"gpu": amount.gpus, "cpu": amount.millicpus, "memory": amount.memory}
    return usual.get(what, amount.count_of(what)) > 0
