"""Does every node of an allocation really have the room? A pure function over what is known of nodes, pods
and promises.

Taken on a node is what the ledger holds for jobs, plus every pod that has not ended and whose job holds
nothing: everybody else's, and ours of jobs that are being cleaned up. A pod that is being deleted still takes
its room until it is gone. Where pods of a job ask for more than is held for it, the pods count: of a job that
is ending Slurm does not tell the GPUs any more, and its promise may have been read anew since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock import wording
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
    return tuple(by_node(allocation, nodes=nodes, pods=pods, promised=promised).values())


def by_node(
    allocation: jobs.Allocation,
    *,
    nodes: Mapping[str, types.Node],
    pods: Iterable[types.Pod],
    promised: ledger.Ledger,
) -> dict[str, str]:
    """The same, by the names of the nodes that cannot hold it."""
    own = allocation.identity.job_id
    pods = [pod for pod in pods if pod.spec.node_name and not reading.is_over(pod)]
    others, beyond = _unpromised_by_node(pods, promised), _beyond_promises(pods, promised, besides=own)
    found = {
        share.node: _refusal(
            share,
            allocation,
            nodes,
            others.get(share.node, []),
            promised.held_on(share.node, besides=own) + beyond.get(share.node, resources.Amount()),
        )
        for share in allocation.shares
    }
    return {node: words for node, words in found.items() if words}


def free(
    nodes: Mapping[str, types.Node], pods: Iterable[types.Pod], promised: ledger.Ledger
) -> dict[str, resources.Amount]:
    """What is left of every node that Kubernetes can use now; less than nothing where others took more."""
    pods = [pod for pod in pods if pod.spec.node_name and not reading.is_over(pod)]
    others, beyond = _unpromised_by_node(pods, promised), _beyond_promises(pods, promised, besides=0)
    left = {}
    for node in nodes.values():
        if node.ready and not node.spec.unschedulable:
            name = node.metadata.name
            taken = promised.held_on(name, besides=0) + beyond.get(name, resources.Amount())
            taken += sum(map(reading.requested, others.get(name, [])), start=resources.Amount())
            left[name] = reading.amount(node.status.allocatable) - taken
    return left


def _unpromised_by_node(pods: Iterable[types.Pod], promised: ledger.Ledger) -> dict[str, list[types.Pod]]:
    by_node: dict[str, list[types.Pod]] = {}
    for pod in pods:
        job_id = reading.job_id(pod)
        if job_id is None or promised.of(job_id) is None:
            by_node.setdefault(pod.spec.node_name, []).append(pod)
    return by_node


def _beyond_promises(
    pods: Iterable[types.Pod], promised: ledger.Ledger, *, besides: int
) -> dict[str, resources.Amount]:
    """What pods of jobs take of each node over and above what is held for their jobs."""
    taken: dict[tuple[str, int], resources.Amount] = {}
    for pod in pods:
        job_id, node = reading.job_id(pod), pod.spec.node_name
        if job_id is not None and job_id != besides and promised.of(job_id) is not None:
            taken[node, job_id] = taken.get((node, job_id), resources.Amount()) + reading.requested(pod)
    found: dict[str, resources.Amount] = {}
    for (node, job_id), amount in taken.items():
        more = amount.beyond(promised.share_of(job_id, node))
        found[node] = found.get(node, resources.Amount()) + more
    return found


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
        text += f", held by {wording.some(holders, NAMED_HOLDERS)}"
    return text


def _takes(pod: types.Pod, what: str) -> bool:
    amount = reading.requested(pod)
    usual = {"gpu": amount.gpus, "cpu": amount.millicpus, "memory": amount.memory}
    return usual.get(what, amount.count_of(what)) > 0
