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

    def hold(self, allocation: jobs.Allocation) -> None:
        """Promise the room; an earlier attempt of the same job is forgotten."""
        job_id = allocation.identity.job_id
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
