"""Placement: who chooses the nodes of a job's pods, one class per mode of a partition.

`check`: Slurm chooses. Admission checks that there is room, and penstockd binds the pods. `trust`:
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

LOOK_SECONDS = 12.0  # an admission's longest wait for the API: Slurm holds the nodes meanwhile

View = tuple[dict[str, types.Node], list[types.Pod]]
ANYWHERE = ""


class Gang(Protocol):
    """A job's created pods, and the steps of placing them."""

    @property
    def ranks(self) -> range: ...

    @property
    def waits_for_names(self) -> bool:
        """Whether the script starts when rank 0 is told the gang's names, and not before."""

    async def make_secret(self) -> None:
        """Create the Secret, without which no container of the gang starts."""

    async def bind(self, rank: int) -> None: ...

    async def others_run(self) -> None:
        """Wait until all ranks but 0 run; raises GangRefused if one never will."""

    async def tell_others(self) -> None:
        """Tell all ranks but 0 the names, when all run; raises GangRefused if one cannot be told."""

    async def announce(self) -> None:
        """Tell the launcher that the script may run; from then on no other gang is created."""

    async def tell_first(self) -> None:
        """Tell rank 0 the names: its script starts."""


class Placement(Protocol):
    """What admission, launch and release ask of a mode."""

    async def look(self, allocation: jobs.Allocation) -> View:
        """The allocation's nodes and their pods by the API now; raises KubeError or TimeoutError."""

    def refusals(self, allocation: jobs.Allocation, view: View) -> tuple[reasons.Refusal, ...]:
        """Why the job cannot start. Not a coroutine, so that room is reserved without a gap after it."""

    def candidates(self, share: jobs.NodeShare) -> Iterable[types.Node | None]:
        """Nodes on which the pod may run; None for one that is not in the cache."""

    async def place(self, gang: Gang) -> None:
        """Secret, bindings and announcement, in the order that makes the gang start as a whole or not."""

    def is_placed(self, first: types.Pod) -> bool:
        """Whether rank 0's pod is placed, so that its end can be waited for."""

    async def loss_of(self, allocation: jobs.Allocation) -> reasons.Outcome:
        """The outcome of an attempt whose pods are gone and whose end was not seen."""

    def released_with(self, job_id: int, node: str) -> str | None:
        """Where the job's pods are deleted when Slurm takes this node back: a node, ANYWHERE, or None yet."""

    def covers(self, job_id: int, node: str) -> bool:
        """Whether the job's pods may be on the node."""


async def _start_together(gang: Gang) -> None:
    await gang.others_run()
    await gang.tell_others()
    await gang.announce()
    await gang.tell_first()


class Bound:
    """Mode `check`: Slurm chooses the node of each rank, and penstockd binds the pod to it."""

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
        """The script does not start if a kubelet rejects another pod of the gang: rank 0 waits for names, or
        is bound last.
        """
        await gang.make_secret()
        for rank in gang.ranks[1:]:
            await gang.bind(rank)
        if gang.waits_for_names:
            await gang.bind(0)
            await _start_together(gang)
        else:
            await gang.others_run()
            await gang.announce()
            await gang.bind(0)

    def is_placed(self, first: types.Pod) -> bool:
        return bool(first.spec.node_name)

    async def loss_of(self, allocation: jobs.Allocation) -> reasons.Outcome:
        """Lost with one of its nodes, or deleted by somebody."""
        names = [share.node for share in allocation.shares]
        there = await confirmation.nodes(self._context.kube, names)
        return reasons.VANISHED if len(there) == len(names) else reasons.NODE_LOST

    def released_with(self, job_id: int, node: str) -> str | None:
        return node

    def covers(self, job_id: int, node: str) -> bool:
        return self._context.store.holds(job_id, node)


class Scheduled:
    """Mode `trust`: kube-scheduler chooses any node with room."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def look(self, allocation: jobs.Allocation) -> View:
        return {}, []

    def refusals(self, allocation: jobs.Allocation, view: View) -> tuple[reasons.Refusal, ...]:
        return ()

    def candidates(self, share: jobs.NodeShare) -> Iterable[types.Node | None]:
        return tuple(self._context.nodes.objects.values())

    async def place(self, gang: Gang) -> None:
        """Announce first if nothing else holds the script: with its Secret it can start."""
        if gang.waits_for_names:
            await gang.make_secret()
            await _start_together(gang)
        else:
            await gang.announce()
            await gang.make_secret()
            await gang.others_run()

    def is_placed(self, first: types.Pod) -> bool:
        """A pod that kube-scheduler has placed may still wait for its Secret."""
        return bool(first.spec.node_name) and podview.has_started(first)

    async def loss_of(self, allocation: jobs.Allocation) -> reasons.Outcome:
        return reasons.VANISHED

    def released_with(self, job_id: int, node: str) -> str | None:
        """kube-scheduler chose the pods' nodes, so all pods go with rank 0's node."""
        return ANYWHERE if 0 in self._context.store.ranks(job_id, node) else None

    def covers(self, job_id: int, node: str) -> bool:
        return True


class Placements:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._by_mode: dict[str, Placement] = {"check": Bound(context), "trust": Scheduled(context)}

    def of(self, partition: str) -> Placement:
        return self._by_mode[self._context.settings.partition(partition).mode]
