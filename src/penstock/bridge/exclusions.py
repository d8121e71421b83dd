"""Which nodes to exclude for a waiting job: those where Slurm sees room and Kubernetes has none.

Slurm waits for its own jobs by itself. It does not know of other people's pods, nor of cordoned or unready
nodes, and would start the job there again and again.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable, Mapping

from penstock.bridge import capacity, jobstore
from penstock.kube import types
from penstock.model import jobs, resources
from penstock.model.nodes import Node


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """How to steer a waiting job."""

    avoids: frozenset[str] = frozenset()
    """Nodes to exclude."""
    goes: bool = False
    """Whether enough other nodes have room, now or when Slurm's jobs there end: no delay is needed."""
    on: tuple[str, ...] = ()
    """Nodes on which it probably starts at once."""


@dataclasses.dataclass
class Rooms:
    """Room by node: what is free, and what Slurm's jobs have reserved."""

    free: dict[str, resources.Amount]
    taken: dict[str, resources.Amount]

    @classmethod
    def of(
        cls, nodes: Mapping[str, types.Node], pods: Iterable[types.Pod], reserved: jobstore.Store
    ) -> Rooms:
        """Of schedulable nodes only."""
        free = capacity.free(nodes, pods, reserved)
        return cls(free, {name: reserved.reserved_on(name, besides=0) for name in free})

    def take(self, node: str, amount: resources.Amount) -> None:
        """Count room for a job that is about to start there."""
        if node in self.free:
            self.free[node] -= amount
            self.taken[node] += amount

    def has(self, node: str, amount: resources.Amount) -> bool:
        return node in self.free and not amount.shortages(self.free[node])

    def misleads(self, node: Node, amount: resources.Amount) -> bool:
        """Whether Slurm would start the job there in vain, now or when its own jobs have ended."""
        name = node.name
        if name not in self.free:
            return True
        if self.has(name, amount):
            return False
        is_busy = bool(amount.shortages(node.amount - self.taken[name]))
        return not is_busy or bool(amount.shortages(self.free[name] + self.taken[name]))

    def plan(self, wanted: Wanted, nodes: Iterable[Node], *, refused: Collection[str] = ()) -> Plan:
        """Exclude nodes if enough others are left. Nodes in `refused`, where the job was just refused, are
        excluded whatever the caches say.
        """
        known = tuple(nodes)
        good = [
            node
            for node in known
            if wanted.suits(node) and node.name not in refused and not self.misleads(node, wanted.largest)
        ]
        if len(good) < wanted.count:
            return Plan()
        at_once = tuple(node.name for node in good if self.has(node.name, wanted.largest))
        avoids = {node.name for node in known if self.misleads(node, wanted.smallest)}
        return Plan(
            goes=True,
            on=at_once[: wanted.count] if len(at_once) >= wanted.count else (),
            avoids=frozenset() if wanted.is_fixed else frozenset(avoids) | frozenset(refused),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a job needs, by its refused allocation and Slurm's record."""

    shares: tuple[jobs.NodeShare, ...]
    is_fixed: bool = False
    """To its allocation's nodes: its owner named them, or uses a Slurm reservation."""
    features: bool = False
    """Whether it requests any: then only nodes with the features of its allocation's nodes suit for sure."""
    excluded: frozenset[str] = frozenset()
    """By its owner."""
    model: tuple[Node, ...] = ()
    """The nodes of its allocation."""

    @property
    def count(self) -> int:
        return len(self.shares)

    @property
    def largest(self) -> resources.Amount:
        amounts = (share.amount for share in self.shares)
        return functools.reduce(resources.Amount.largest, amounts, resources.Amount())

    @property
    def smallest(self) -> resources.Amount:
        return functools.reduce(resources.Amount.smallest, (share.amount for share in self.shares))

    def suits(self, node: Node) -> bool:
        """Whether Slurm could start the job on the node if it were empty. False in doubt: Slurm holds a job
        forever if it finds no possible node.
        """
        if not node.is_up or node.name in self.excluded:
            return False
        if self.is_fixed:
            return any(share.node == node.name for share in self.shares)
        if any(node.features == each.features and node.amount == each.amount for each in self.model):
            return True
        return not self.features and not self.largest.shortages(node.amount)
