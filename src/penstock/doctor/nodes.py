"""Both truths of a node: what Slurm believes it has and gave away, and what Kubernetes can give.

Amounts go by Kubernetes' names, without devices that are no GPUs of this site. None: a side does not know it.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.doctor.live import Live
from penstock.kube import podview
from penstock.model.resources import Amount


def bridged(live: Live) -> Iterator[tuple[str, Amount, Amount, Amount]]:
    """Name, claimed, allocated and allocatable of nodes of bridged partitions that both know."""
    for name in live.bridged_nodes:
        can_give, slurm = allocatable(live, name), in_slurm(live, name)
        if can_give is not None and slurm is not None:
            yield name, *slurm, can_give


def in_slurm(live: Live, name: str) -> tuple[Amount, Amount] | None:
    """What Slurm claims, and has given to jobs: of GPUs of several types it tells only how many."""
    node = live.slurm_nodes.get(name)
    return (node.amount, node.used) if node is not None else None


def allocatable(live: Live, name: str) -> Amount | None:
    """What Kubernetes can give."""
    node = live.kube_nodes.get(name)
    return live.gpus_only(podview.amount(node.status.allocatable)) if node is not None else None
