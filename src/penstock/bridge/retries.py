"""Steers refused jobs: excludes nodes without room, delays jobs, and wakes them when there is room.

Slurm would offer a refused job the same node again, for it sees room there. So nodes that cannot hold it are
put on its ExcNodeList while enough others are left, and it is tried again at once. Otherwise it is delayed,
longer each time, until room appears. What we set is noted in the job's mark: the owner's own ExcNodeList and
start time are kept, and a restarted penstockd undoes what it had set.

A start time that we did not set is never changed, except the one that Slurm gives to a job after a failed
PrologSlurmctld. A launched and requeued job waits until its old credential has expired: started in the same
second, slurmd would run no Epilog for it on nodes without a step, which would be freed too early.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection

from penstock import errors, joblog
from penstock.bridge import exclusions
from penstock.bridge.context import Context
from penstock.model import jobs
from penstock.model.nodes import Node

log = logging.getLogger(__name__)

INTERVAL = 1.0  # seconds between two looks at the waiting jobs
TARGETS_SECONDS = 10.0  # how long Slurm's nodes are cached
QUEUE_SECONDS = 15.0  # between two looks at Slurm's queue if nothing has changed
ON_ITS_WAY_SECONDS = 10.0  # how long room is counted as taken by a job that was woken
MOST_AT_ONCE = 50  # jobs changed in one look: each costs Slurm two commands
MOST_TRIES = 8  # refusals in a row after which a job is only delayed: Slurm's or our view must be wrong
OWNERS_SLACK = 5  # seconds; a start time that is later than ours by more was set by the owner
BAD_CONSTRAINTS = "BadConstraints"  # Slurm holds a job that fits on no node


@dataclasses.dataclass
class Waiting:
    """A job that was refused, or has excluded nodes."""

    allocation: jobs.Allocation
    wanted: exclusions.Wanted
    avoids: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    """Nodes of its last allocation that had no room."""
    delayed: bool = False
    settled: bool = False
    """Its last refusal was followed up; until then `look` leaves it alone."""


class Steering:
    """Steers all jobs that wait for Kubernetes."""

    def __init__(self, context: Context) -> None:
        self.waiting: dict[int, Waiting] = {}
        self._context, self._slurm, self._time = context, context.slurm, context.time
        self._pods, self._nodes, self._store = context.pods, context.nodes, context.store
        self._targets: dict[str, tuple[float, tuple[Node, ...]]] = {}
        self._on_its_way: dict[int, tuple[float, tuple[str, ...]]] = {}
        self._without_api: set[int] = set()
        """Jobs that were refused because the API did not answer."""
        self._queue_seen = 0.0

    # -- results of admission ----------------------------------------------------------------------

    def refused(self, allocation: jobs.Allocation, *, on: Collection[str]) -> None:
        """Kubernetes has no room for the job on these nodes of its allocation."""
        job_id = allocation.identity.job_id
        self._on_its_way.pop(job_id, None)
        before = self.waiting.get(job_id)
        avoids = before.avoids if before else frozenset()
        wanted = exclusions.Wanted(shares=allocation.shares)
        self.waiting[job_id] = Waiting(allocation, wanted, avoids, refused=frozenset(on))

    def api_unavailable(self, job_id: int) -> None:
        """The job was refused because the API did not answer."""
        self.waiting.pop(job_id, None)
        self._without_api.add(job_id)

    def admitted(self, allocation: jobs.Allocation, avoids: Collection[str] = ()) -> None:
        """The job starts. Its excluded nodes are remembered, to be lifted if it waits again."""
        job_id = allocation.identity.job_id
        self._without_api.discard(job_id)
        self._on_its_way.pop(job_id, None)
        before = self.waiting.pop(job_id, None)
        kept = frozenset(avoids) or (before.avoids if before else frozenset())
        if kept:
            wanted = exclusions.Wanted(shares=allocation.shares)
            self.waiting[job_id] = Waiting(allocation, wanted, kept, settled=True)

    # -- after a refusal ---------------------------------------------------------------------------

    async def put_off(self, job_id: int, seconds: int, *, tries: int) -> bool:
        """Exclude nodes for a refused, pending job, or delay it. True if it need not wait."""
        waiting = self.waiting.get(job_id)
        job = await self._slurm.waiting(job_id)
        if job is None:
            self.waiting.pop(job_id, None)
            return False
        if waiting is None:
            until = int(self._context.wall_clock()) + seconds
            await self._slurm.steer(job, avoids=job.avoids, seconds=seconds, until=until)
            return False
        targets = await self._targets_of(waiting)
        _learn(waiting, job, targets)
        plan = exclusions.Plan()
        if tries <= MOST_TRIES:
            plan = self._rooms().plan(waiting.wanted, targets, refused=waiting.refused)
            waiting.settled = True
        await self._follow(waiting, job, plan, 0 if plan.goes else seconds)
        return plan.goes

    async def _follow(
        self, waiting: Waiting, job: jobs.Job, plan: exclusions.Plan, seconds: int | None
    ) -> None:
        """Apply the plan in Slurm, and count room on the nodes where the job probably starts."""
        avoids = plan.avoids - job.own_excluded
        until = int(self._context.wall_clock()) + seconds if seconds else 0
        await self._slurm.steer(job, avoids=avoids, seconds=seconds, until=until)
        waiting.avoids, waiting.delayed = avoids, not plan.goes
        if plan.on:
            self._on_its_way[job.job_id] = self._time.now() + ON_ITS_WAY_SECONDS, plan.on
        when = "may start at once" if plan.goes else f"is delayed by {seconds} s"
        excluded = f", excluded nodes: {','.join(sorted(avoids))}" if avoids else ""
        joblog.of(log, job.job_id).info("%s%s", when, excluded)

    # -- when things change ------------------------------------------------------------------------

    async def look(self) -> None:
        """Lift needless exclusions, and wake jobs for which there is room, by Slurm's priority."""
        if not self._context.is_fresh:
            return
        await self._wake_after_outage()
        candidates = [
            job_id
            for job_id, each in self.waiting.items()
            if each.settled and self._store.reservation(job_id) is None
        ]
        if not candidates:
            return
        due = self._time.now() >= self._queue_seen + QUEUE_SECONDS
        if not due and not await self._would_change(candidates):
            return
        self._queue_seen = self._time.now()
        queue = {row.job_id: row for row in await self._slurm.queued(candidates)}
        for job_id in candidates:
            if job_id not in queue:
                del self.waiting[job_id]
        pending = [row for row in queue.values() if row.is_pending and row.job_id in self.waiting]
        await self._wake(sorted(pending, key=lambda row: (-row.priority, row.job_id)))

    async def _wake_after_outage(self) -> None:
        for job_id in sorted(self._without_api)[:MOST_AT_ONCE]:
            job = await self._slurm.waiting(job_id)
            if job is not None and job.until and not _is_owners(job):
                await self._slurm.steer(job, avoids=job.avoids, seconds=0, until=0)
            self._without_api.discard(job_id)

    async def _would_change(self, job_ids: list[int]) -> bool:
        room = self._rooms()
        for job_id in job_ids:
            waiting = self.waiting[job_id]
            plan = room.plan(waiting.wanted, await self._targets_of(waiting))
            if _changes(waiting, plan):
                return True
        return False

    async def _wake(self, queue: list[jobs.Job]) -> None:
        room, changed = self._rooms(), 0
        for row in queue:
            waiting = self.waiting[row.job_id]
            plan = room.plan(waiting.wanted, await self._targets_of(waiting))
            if row.reason == BAD_CONSTRAINTS and waiting.avoids:
                plan = exclusions.Plan(goes=True)
            elif not _changes(waiting, plan):
                continue
            if changed == MOST_AT_ONCE:
                return
            changed += 1
            await self._wake_one(waiting, plan)
            for share, node in zip(waiting.allocation.shares, plan.on, strict=False):
                room.take(node, share.amount)

    async def _wake_one(self, waiting: Waiting, plan: exclusions.Plan) -> None:
        job_id = waiting.allocation.identity.job_id
        job = await self._slurm.waiting(job_id)
        if job is None:
            return
        if _is_owners(job):
            joblog.of(log, job_id).info("keeps its start time, which its owner or Slurm has set")
            self.waiting.pop(job_id, None)
            if job.avoids:
                await self._slurm.steer(job, avoids=(), seconds=None, until=0)
            return
        try:
            await self._follow(waiting, job, plan, 0 if job.until else None)
        except errors.SlurmUnavailable:
            raise
        except errors.SlurmError as error:
            joblog.of(log, job_id).info("is not steered: %s", error.message)
            self.waiting.pop(job_id, None)

    async def recover(self) -> None:
        """Undo what an earlier penstockd set; jobs without room are refused again."""
        for job_id in await self._slurm.put_off():
            job = await self._slurm.waiting(job_id)
            if job is not None and not _is_owners(job):
                await self._slurm.steer(job, avoids=(), seconds=0 if job.until else None, until=0)

    # -- room and nodes ----------------------------------------------------------------------------

    def _rooms(self) -> exclusions.Rooms:
        found = exclusions.Rooms.of(self._nodes.objects, self._pods.objects.values(), self._store)
        now = self._time.now()
        self._on_its_way = {
            job_id: each
            for job_id, each in self._on_its_way.items()
            if each[0] > now and job_id in self.waiting and self._store.reservation(job_id) is None
        }
        for job_id, (_, nodes) in self._on_its_way.items():
            for share, node in zip(self.waiting[job_id].allocation.shares, nodes, strict=False):
                found.take(node, share.amount)
        return found

    async def _targets_of(self, waiting: Waiting) -> tuple[Node, ...]:
        partition = waiting.allocation.partition
        until, targets = self._targets.get(partition, (0.0, ()))
        if self._time.now() >= until:
            targets = await self._slurm.targets(partition)
            self._targets[partition] = self._time.now() + TARGETS_SECONDS, targets
        return targets


def _learn(waiting: Waiting, job: jobs.Job, targets: tuple[Node, ...]) -> None:
    """Update what the job needs by Slurm's record of it."""
    names = {share.node for share in waiting.allocation.shares}
    waiting.avoids = frozenset(job.avoids)
    waiting.wanted = dataclasses.replace(
        waiting.wanted,
        is_fixed=job.is_fixed,
        features=job.features,
        excluded=job.own_excluded,
        model=tuple(target for target in targets if target.name in names),
    )


def _is_owners(job: jobs.Job) -> bool:
    """Whether the job's start time was set by its owner or Slurm."""
    return bool(job.until) and job.begins > job.until + OWNERS_SLACK


def _changes(waiting: Waiting, plan: exclusions.Plan) -> bool:
    """Whether the plan ends the job's delay or lifts an exclusion."""
    return plan.goes and (waiting.delayed or bool(waiting.avoids - plan.avoids))
