"""Both truths of a node: what Slurm believes it has and gave away, and what Kubernetes can give.

Amounts go by Kubernetes' names, without devices that are no GPUs of this site. None: a side does not know it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.doctor.live import Live
from penstock.kube import reading
from penstock.model import jobs
from penstock.model.resources import Amount, Devices
from penstock.site import daemons


class Truths(NamedTuple):
    """A node that both know."""

    name: str
    claimed: Amount
    allocated: Amount
    allocatable: Amount


def bridged(live: Live) -> Iterator[Truths]:
    """Nodes of bridged partitions that both know."""
    found = (both(live, name) for name in live.bridged_nodes)
    return (truths for truths in found if truths is not None)


def both(live: Live, name: str) -> Truths | None:
    can_give, has, gave = allocatable(live, name), claimed(live, name), allocated(live, name)
    return None if has is None or gave is None or can_give is None else Truths(name, has, gave, can_give)


def claimed(live: Live, name: str) -> Amount | None:
    """What Slurm believes that it has."""
    node = live.slurm_nodes.get(name)
    if node is None:
        return None
    amount = Amount(millicpus=node.cpus * 1000, memory=node.memory_mb * 2**20, gpus=node.gpus)
    return _in_kubernetes(live, name, amount, node.gpus_by_type)


def allocated(live: Live, name: str) -> Amount | None:
    """What Slurm has given to jobs; of a node with GPUs of several types it tells only how many."""
    node = live.slurm_nodes.get(name)
    if node is None:
        return None
    memory = node.used_memory_mb * 2**20
    amount = Amount(millicpus=node.used_cpus * 1000, memory=memory, gpus=node.used_gpus)
    return _in_kubernetes(live, name, amount, ((node.gpu_type, node.used_gpus),) if node.gpu_type else ())


def _in_kubernetes(live: Live, name: str, amount: Amount, types: Devices) -> Amount:
    share = jobs.NodeShare(node=name, amount=amount, gpus_by_type=types)
    return share.in_kubernetes(daemons.gpu_resources(live.site)).amount


def allocatable(live: Live, name: str) -> Amount | None:
    """What Kubernetes can give."""
    node = live.kube_nodes.get(name)
    return live.gpus_only(reading.amount(node.status.allocatable)) if node is not None else None
