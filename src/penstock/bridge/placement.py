"""Who chooses the nodes of a job's pods, and what follows from it: one class per mode of a partition.

`check`: Slurm chooses. Admission proves that there is room, and we bind the pods ourselves. `trust`:
kube-scheduler chooses, and nothing is checked. A new mode is a class here and its line in Placements.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from penstock.bridge import capacity, confirmation
from penstock.bridge.context import Context
from penstock.kube import podview, types
from penstock.model import jobs, reasons

LOOK_SECONDS = 12.0  # the longest that an admission waits for the API: Slurm holds the nodes meanwhile

View = tuple[dict[str, types.Node], list[types.Pod]]
ANYWHERE = ""


class Gang(Protocol):
    """The pods of a job that are made and not placed, and what can be done with them."""

    @property
    def ranks(self) -> range: ...

    async def make_secret(self) -> None:
        """Without it no container of the gang starts."""

    async def bind(self, rank: int) -> None: ...

    async def others_run(self) -> None:
        """Returns when all ranks but 0 run; GangRefused when one never will."""

    async def announce(self) -> None:
        """Tell the launcher that the script may run: from then on there is only this gang."""


class Placement(Protocol):
    """What admission, launch and release ask of a mode."""

    async def look(self, allocation: jobs.Allocation) -> View:
        """What the API says of the allocation's nodes now; KubeError or TimeoutError when it does not."""

    def refusals(self, allocation: jobs.Allocation, view: View) -> tuple[reasons.Refusal, ...]:
        """Why the job cannot start; does not wait, so that the room can be reserved in the same moment."""

    def candidates(self, share: jobs.NodeShare) -> Iterable[types.Node | None]:
        """Nodes on which the pod may come to run; None for one that the cache does not have."""

    async def place(self, gang: Gang) -> None:
        """Secret, bindings and announcement, in the order that keeps the promise "all or none"."""

    def is_placed(self, first: types.Pod) -> bool:
        """Whether nothing is left to do for rank 0's pod but to wait for its end."""

    async def loss_of(self, allocation: jobs.Allocation) -> reasons.Outcome:
        """How an attempt ended whose pods are gone and whose end nobody saw."""

    def released_with(self, job_id: int, node: str) -> str | None:
        """Where the job's pods go when Slurm takes this node back: a node, ANYWHERE, or nowhere yet."""

    def covers(self, job_id: int, node: str) -> bool:
        """Whether the job's pods have a right to be on the node."""


class Bound:
    """Mode `check`: Slurm chooses the node of each rank, and we bind the pod to it."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def look(self, allocation: jobs.Allocation) -> View:
        names = [share.node for share in allocation.shares]
        async with asyncio.timeout(LOOK_SECONDS):
            nodes = await confirmation.nodes(self._context.kube, names)
            return nodes, await confirmation.pods_on(self._context.kube, names, self._context.pods)

    def refusals(self, allocation: jobs.Allocation, view: View) -> tuple[reasons.Refusal, ...]:
        nodes, pods = view
        return capacity.refusals(allocation, nodes=nodes, pods=pods, reserved=self._context.store)

    def candidates(self, share: jobs.NodeShare) -> Iterable[types.Node | None]:
        return (self._context.nodes.objects.get(f"/{share.node}"),)

    async def place(self, gang: Gang) -> None:
        """Rank 0 last: the script never starts in a gang that kubelets refuse in part."""
        await gang.make_secret()
        for rank in gang.ranks[1:]:
            await gang.bind(rank)
        await gang.others_run()
        await gang.announce()
        await gang.bind(0)

    def is_placed(self, first: types.Pod) -> bool:
        return bool(first.spec.node_name)

    async def loss_of(self, allocation: jobs.Allocation) -> reasons.Outcome:
        """With a node of its own, or deleted by somebody."""
        names = [share.node for share in allocation.shares]
        there = await confirmation.nodes(self._context.kube, names)
        return reasons.VANISHED if len(there) == len(names) else reasons.NODE_LOST

    def released_with(self, job_id: int, node: str) -> str | None:
        return node

    def covers(self, job_id: int, node: str) -> bool:
        return self._context.store.holds(job_id, node)


class Scheduled:
    """Mode `trust`: kube-scheduler chooses, on whatever node there is room."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def look(self, allocation: jobs.Allocation) -> View:
        return {}, []

    def refusals(self, allocation: jobs.Allocation, view: View) -> tuple[reasons.Refusal, ...]:
        return ()

    def candidates(self, share: jobs.NodeShare) -> Iterable[types.Node | None]:
        return tuple(self._context.nodes.objects.values())

    async def place(self, gang: Gang) -> None:
        """The Secret is all that the script still lacks."""
        await gang.announce()
        await gang.make_secret()
        await gang.others_run()

    def is_placed(self, first: types.Pod) -> bool:
        """kube-scheduler may have placed a pod whose script the Secret still keeps from running."""
        return bool(first.spec.node_name) and podview.has_started(first)

    async def loss_of(self, allocation: jobs.Allocation) -> reasons.Outcome:
        return reasons.VANISHED

    def released_with(self, job_id: int, node: str) -> str | None:
        """The pods are on nodes of kube-scheduler's choice: all go with the script's."""
        return ANYWHERE if 0 in self._context.store.ranks(job_id, node) else None

    def covers(self, job_id: int, node: str) -> bool:
        return True


class Placements:
    """The placement of each partition, by its mode."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._by_mode: dict[str, Placement] = {"check": Bound(context), "trust": Scheduled(context)}

    def of(self, partition: str) -> Placement:
        return self._by_mode[self._context.settings.partition(partition).mode]
