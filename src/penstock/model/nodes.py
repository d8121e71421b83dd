"""Nodes and partitions as slurmctld knows them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from penstock.model import jobs, resources, states

NOTHING = resources.Amount()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """A node with what Slurm believes it has, and has given to jobs."""

    name: str
    state: str
    amount: resources.Amount
    used: resources.Amount = NOTHING
    gpu_type: str = ""
    """The first, where it has several."""
    gpus_by_type: resources.Devices = ()
    features: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    reason: str = ""
    address: str = ""
    """Where slurmctld finds its slurmd."""

    @property
    def is_up(self) -> bool:
        """Whether Slurm gives it to jobs at all, now or when those that are there have ended."""
        words = states.words_of_node(self.state)
        return bool(words & states.OPEN) and not words & states.CLOSED

    @property
    def is_drained(self) -> bool:
        return bool(states.words_of_node(self.state) & states.DRAINED)

    @property
    def is_out_of_service(self) -> bool:
        return bool(states.words_of_node(self.state) & states.OUT_OF_SERVICE)

    def in_kubernetes(self, gpu_resources: Mapping[str, str]) -> Node:
        """The node with its GPUs under the resource names that their types have there. Of a node with GPUs of
        several types Slurm tells only how many are used.
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
    """A node on which Slurm starts nothing, as somebody wanted. Not a Node: sinfo alone tells since when, and
    the reason as it was given.
    """

    node: str
    reason: str
    since: float
    """When the reason was given, by slurmctld's clock; 0 when it does not say."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition."""

    name: str
    nodes: tuple[str, ...]
