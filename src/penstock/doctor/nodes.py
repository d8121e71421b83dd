"""Both truths of a node: what Slurm believes it has and gave away, and what Kubernetes can give.

Amounts go by Kubernetes' names, without devices that are no GPUs of this site. None: a side does not know it.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.doctor.live import Live
from penstock.kube import reading
from penstock.model import jobs
from penstock.model.resources import Amount
from penstock.site import daemons


def bridged(live: Live) -> Iterator[tuple[str, Amount, Amount, Amount]]:
    """Name, claimed, allocated and allocatable of nodes of bridged partitions that both know."""
    for name in live.bridged_nodes:
        can_give, slurm = allocatable(live, name), in_slurm(live, name)
        if can_give is not None and slurm is not None:
            yield name, *slurm, can_give


def in_slurm(live: Live, name: str) -> tuple[Amount, Amount] | None:
    """What Slurm claims, and has given to jobs: of GPUs of several types it tells only how many."""
    node = live.slurm_nodes.get(name)
    if node is None:
        return None
    memory, used = node.memory_mb * 2**20, node.used_memory_mb * 2**20
    has = Amount(millicpus=node.cpus * 1000, memory=memory, gpus=node.gpus)
    gave = Amount(millicpus=node.used_cpus * 1000, memory=used, gpus=node.used_gpus)
    types = ((node.gpu_type, node.used_gpus),) if node.gpu_type else ()
    claimed = jobs.NodeShare(node=name, amount=has, gpus_by_type=node.gpus_by_type)
    allocated = jobs.NodeShare(node=name, amount=gave, gpus_by_type=types)
    names = daemons.gpu_resources(live.site)
    return claimed.in_kubernetes(names).amount, allocated.in_kubernetes(names).amount


def allocatable(live: Live, name: str) -> Amount | None:
    """What Kubernetes can give."""
    node = live.kube_nodes.get(name)
    return live.gpus_only(reading.amount(node.status.allocatable)) if node is not None else None
