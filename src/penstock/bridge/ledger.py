"""Room that was promised to jobs: from admission until the Epilog has seen the job's last pod go.

In memory only. After a restart it is written anew from what Slurm says is running, so nothing here is a truth
of our own.
"""

from __future__ import annotations

import dataclasses

from penstock.model import jobs, resources


class Ledger:
    """Who holds how much of which node."""

    def __init__(self) -> None:
        self._held: dict[int, jobs.Allocation] = {}
        self._ranks: dict[int, dict[str, int]] = {}
        self._leaving: set[int] = set()

    def hold(self, allocation: jobs.Allocation) -> None:
        """Promise the room; an earlier attempt of the same job is forgotten."""
        job_id = allocation.identity.job_id
        before = self._held.get(job_id)
        if before is None or before.identity != allocation.identity:
            self._leaving.discard(job_id)
        self._held[job_id] = allocation
        self._ranks[job_id] = {share.node: rank for rank, share in enumerate(allocation.shares)}

    def of(self, job_id: int) -> jobs.Allocation | None:
        return self._held.get(job_id)

    def allocations(self) -> tuple[jobs.Allocation, ...]:
        return tuple(self._held.values())

    def ranks(self, job_id: int, node: str = "") -> tuple[int, ...]:
        """The ranks that the job was promised on the node, or on all."""
        ranks = self._ranks.get(job_id, {})
        return tuple(rank for place, rank in ranks.items() if node in ("", place))

    def leave(self, job_id: int, node: str) -> None:
        """Slurm takes this node back, and the others after it; an earlier attempt's node says nothing."""
        if self.holds(job_id, node):
            self._leaving.add(job_id)

    def is_leaving(self, job_id: int) -> bool:
        return job_id in self._leaving

    def holds(self, job_id: int, node: str) -> bool:
        """Whether the node is still the job's."""
        allocation = self._held.get(job_id)
        return allocation is not None and any(share.node == node for share in allocation.shares)

    def release(self, job_id: int, node: str) -> None:
        """The job is off this node."""
        allocation = self._held.get(job_id)
        if allocation is None:
            return
        left = tuple(share for share in allocation.shares if share.node != node)
        if left:
            self._held[job_id] = dataclasses.replace(allocation, shares=left)
        else:
            self.forget(job_id)

    def forget(self, job_id: int) -> None:
        """The job is gone from Slurm altogether."""
        self._held.pop(job_id, None)
        self._ranks.pop(job_id, None)
        self._leaving.discard(job_id)

    def jobs(self) -> tuple[int, ...]:
        return tuple(self._held)

    def share_of(self, job_id: int, node: str) -> resources.Amount:
        """What one job holds of a node."""
        allocation = self._held.get(job_id)
        shares = allocation.shares if allocation else ()
        return next((share.amount for share in shares if share.node == node), resources.Amount())

    def held_on(self, node: str, *, besides: int) -> resources.Amount:
        """What all jobs but one hold of a node."""
        total = resources.Amount()
        for job_id, allocation in self._held.items():
            if job_id != besides:
                for share in allocation.shares:
                    if share.node == node:
                        total += share.amount
        return total
