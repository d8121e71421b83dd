"""Which nodes would mislead Slurm about a job: it sees room for it there, and Kubernetes has none.

Slurm knows what its own jobs take, and waits for them by itself. It does not know of other people's pods, nor
of nodes that are cordoned or not ready: it would start the job there again and again, and be refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from penstock.bridge import capacity, jobstore
from penstock.kube import types
from penstock.model import jobs, resources
from penstock.model.nodes import Node

NOTHING = resources.Amount()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do with a job that waits."""

    avoids: frozenset[str] = frozenset()
    """Nodes that would mislead Slurm."""
    goes: bool = False
    """Whether enough other nodes are left that have room, or will have it as soon as Slurm's jobs leave."""
    on: tuple[str, ...] = ()
    """Where it probably starts at once."""


@dataclasses.dataclass
class Rooms:
    """What each node of the cluster has left: for now, and if none of Slurm's jobs were there."""

    free: dict[str, resources.Amount]
    taken: dict[str, resources.Amount]
    """By Slurm's jobs, as Slurm knows."""

    @classmethod
    def of(
        cls, nodes: Mapping[str, types.Node], pods: Iterable[types.Pod], reserved: jobstore.Store
    ) -> Rooms:
        """Only of nodes that Kubernetes can use now."""
        free = capacity.free(nodes, pods, reserved)
        return cls(free, {name: reserved.reserved_on(name, besides=0) for name in free})

    def take(self, node: str, amount: resources.Amount) -> None:
        """A job is on its way there."""
        if node in self.free:
            self.free[node] -= amount
            self.taken[node] += amount

    def has(self, node: str, amount: resources.Amount) -> bool:
        """Whether it fits there now."""
        return node in self.free and not amount.shortages(self.free[node])

    def misleads(self, node: Node, amount: resources.Amount) -> bool:
        """Whether Slurm would start a job of that amount there in vain, now or when its own jobs leave."""
        name = node.name
        if name not in self.free:
            return True
        if self.has(name, amount):
            return False
        is_busy = bool(amount.shortages(node.amount - self.taken[name]))
        return not is_busy or bool(amount.shortages(self.free[name] + self.taken[name]))

    def plan(self, wanted: Wanted, nodes: Iterable[Node], *, refused: Collection[str] = ()) -> Plan:
        """Where a job should not be tried, if there are enough other nodes for it. Where it was refused just
        now it is not tried at once, whatever the picture of the cluster says.
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
    """What a job needs of nodes, as far as its refused allocation and Slurm tell."""

    shares: tuple[jobs.NodeShare, ...]
    is_fixed: bool = False
    """To the nodes of its allocation: its owner named them, or has a reservation."""
    features: bool = False
    """Whether it asks for some: then only nodes with those of its allocation's are known to do."""
    excluded: frozenset[str] = frozenset()
    """By its owner."""
    model: tuple[Node, ...] = ()
    """The nodes of its allocation."""

    @property
    def count(self) -> int:
        return len(self.shares)

    @property
    def largest(self) -> resources.Amount:
        total = NOTHING
        for share in self.shares:
            total = total.largest(share.amount)
        return total

    @property
    def smallest(self) -> resources.Amount:
        total = self.shares[0].amount
        for share in self.shares[1:]:
            total = total.smallest(share.amount)
        return total

    def suits(self, node: Node) -> bool:
        """Whether Slurm could start the job there if the node were empty. Where that is not certain, no: a
        job for which Slurm finds no node at all is held for ever.
        """
        if not node.is_up or node.name in self.excluded:
            return False
        if self.is_fixed:
            return any(share.node == node.name for share in self.shares)
        if any(node.features == each.features and node.amount == each.amount for each in self.model):
            return True
        return not self.features and not self.largest.shortages(node.amount)
