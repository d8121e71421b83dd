"""Nodes and partitions as slurmctld knows them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from penstock.model import jobs, resources, states

NOTHING = resources.Amount()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """A node: what it has, and what Slurm has allocated of it."""

    name: str
    state: str
    amount: resources.Amount
    used: resources.Amount = NOTHING
    gpu_type: str = ""  # the first, if there are several
    gpus_by_type: resources.Devices = ()
    features: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    reason: str = ""
    address: str = ""  # of its slurmd, as slurmctld knows it

    @property
    def is_up(self) -> bool:
        """Whether Slurm schedules jobs on it, now or once its current jobs have ended."""
        words = states.words_of_node(self.state)
        return bool(words & states.OPEN) and not words & states.CLOSED

    @property
    def is_drained(self) -> bool:
        return bool(states.words_of_node(self.state) & states.DRAINED)

    @property
    def is_out_of_service(self) -> bool:
        return bool(states.words_of_node(self.state) & states.OUT_OF_SERVICE)

    def in_kubernetes(self, gpu_resources: Mapping[str, str]) -> Node:
        """With GPUs under their Kubernetes resource names. Slurm gives their use only per node, not per
        type.
        """
        whole = jobs.NodeShare(node=self.name, amount=self.amount, gpus_by_type=self.gpus_by_type)
        types = ((self.gpu_type, self.used.all_gpus),) if self.gpu_type else ()
        used = jobs.NodeShare(node=self.name, amount=self.used, gpus_by_type=types)
        return dataclasses.replace(
            self,
            amount=whole.in_kubernetes(gpu_resources).amount,
            used=used.in_kubernetes(gpu_resources).amount,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drain:
    """A drained node. Not a Node: only sinfo tells since when, and the unmodified reason."""

    node: str
    reason: str
    since: float  # when the reason was set, by slurmctld's clock; 0 if unknown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partition:
    name: str
    nodes: tuple[str, ...]
    is_default: bool = False
