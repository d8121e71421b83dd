"""Jobs that were refused: kept from nodes that would mislead Slurm, and woken when there is room for them.

Slurm offers a refused job the same node again, for it sees room there. So nodes that cannot hold it are put
on its ExcNodeList, as long as others are left for it, and it is tried again at once. Only when none is left
it has to wait, a little longer each time; room that comes wakes those whose turn it is. What we set is noted
in the job's mark, so that its owner's own list and start time stay theirs, and a penstockd that was killed
takes back what it had set.

A start time that we did not set is never changed, except the one that Slurm gives a job whose PrologSlurmctld
has just said no. A job that was launched and is requeued waits until its old credential has expired: started
in the same second, slurmd would run no Epilog for it on nodes without a step, and so free them too early.
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

INTERVAL = 1.0  # seconds between two looks at what waits
TARGETS_SECONDS = 10.0  # how long Slurm's nodes are remembered
QUEUE_SECONDS = 15.0  # between two looks at Slurm's queue when nothing has changed
ON_ITS_WAY_SECONDS = 10.0  # how long room is kept in mind for a job that was woken
MOST_AT_ONCE = 50  # jobs that one look changes: each costs Slurm two commands
MOST_TRIES = 8  # refusals in a row after which a job waits out its time: somebody's picture is wrong
OWNERS_SLACK = 5  # a start time so much later than ours is its owner's
BAD_CONSTRAINTS = "BadConstraints"  # Slurm holds a job for which it has no node at all


@dataclasses.dataclass
class Waiting:
    """A job that was refused, or is kept from nodes."""

    allocation: jobs.Allocation
    wanted: exclusions.Wanted
    avoids: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    """Nodes where it was tried last and had no room."""
    sleeps: bool = False
    settled: bool = False
    """Whether what followed its refusal has been done: until then a look leaves it alone."""


class Steering:
    """All jobs that wait for Kubernetes."""

    def __init__(self, context: Context) -> None:
        self.waiting: dict[int, Waiting] = {}
        self._context, self._slurm, self._time = context, context.slurm, context.time
        self._pods, self._nodes, self._store = context.pods, context.nodes, context.store
        self._targets: dict[str, tuple[float, tuple[Node, ...]]] = {}
        self._on_its_way: dict[int, tuple[float, tuple[str, ...]]] = {}
        self._blind: set[int] = set()
        """Jobs that were refused because the API did not answer."""
        self._queue_seen = 0.0

    # -- what admission tells ----------------------------------------------------------------------

    def refused(self, allocation: jobs.Allocation, *, on: Collection[str]) -> None:
        """Kubernetes has no room for the job on these nodes of its allocation."""
        job_id = allocation.identity.job_id
        self._on_its_way.pop(job_id, None)
        before = self.waiting.get(job_id)
        avoids = before.avoids if before else frozenset()
        wanted = exclusions.Wanted(shares=allocation.shares)
        self.waiting[job_id] = Waiting(allocation, wanted, avoids, refused=frozenset(on))

    def unseen(self, job_id: int) -> None:
        """Whether Kubernetes has room for the job could not be seen."""
        self.waiting.pop(job_id, None)
        self._blind.add(job_id)

    def admitted(self, allocation: jobs.Allocation, avoids: Collection[str] = ()) -> None:
        """The job starts. What it is kept from is lifted should it ever wait again."""
        job_id = allocation.identity.job_id
        self._blind.discard(job_id)
        self._on_its_way.pop(job_id, None)
        before = self.waiting.pop(job_id, None)
        kept = frozenset(avoids) or (before.avoids if before else frozenset())
        if kept:
            wanted = exclusions.Wanted(shares=allocation.shares)
            self.waiting[job_id] = Waiting(allocation, wanted, kept, settled=True)

    # -- after a refusal ---------------------------------------------------------------------------

    async def put_off(self, job_id: int, seconds: int, *, tries: int) -> bool:
        """Send a refused job that is back in the queue elsewhere, or let it wait. True: it goes elsewhere."""
        waiting = self.waiting.get(job_id)
        job = await self._slurm.waiting(job_id)
        if job is None:
            self.waiting.pop(job_id, None)
            return False
        if waiting is None:
            until = int(self._context.wall_clock()) + seconds
            await self._slurm.steer(job, avoids=job.avoids, seconds=seconds, until=until)
            return False
        await self._understand(waiting, job)
        plan = exclusions.Plan()
        if tries <= MOST_TRIES:
            targets = await self._targets_of(waiting)
            plan = self._rooms().plan(waiting.wanted, targets, refused=waiting.refused)
            waiting.settled = True
        await self._follow(waiting, job, plan, 0 if plan.goes else seconds)
        return plan.goes

    async def _understand(self, waiting: Waiting, job: jobs.Job) -> None:
        names = {share.node for share in waiting.allocation.shares}
        targets = await self._targets_of(waiting)
        waiting.avoids = frozenset(job.avoids)
        waiting.wanted = dataclasses.replace(
            waiting.wanted,
            is_fixed=job.is_fixed,
            features=job.features,
            excluded=job.own_excluded,
            model=tuple(target for target in targets if target.name in names),
        )

    async def _follow(
        self, waiting: Waiting, job: jobs.Job, plan: exclusions.Plan, seconds: int | None
    ) -> None:
        """Tell Slurm; a job that goes counts where it probably goes to. `seconds` as Slurm.steer has them."""
        avoids = plan.avoids - job.own_excluded
        until = int(self._context.wall_clock()) + seconds if seconds else 0
        await self._slurm.steer(job, avoids=avoids, seconds=seconds, until=until)
        waiting.avoids, waiting.sleeps = avoids, not plan.goes
        if plan.on:
            until_when = self._time.now() + ON_ITS_WAY_SECONDS
            self._on_its_way[job.job_id] = until_when, plan.on
        joblog.of(log, job.job_id).info(
            "%s%s",
            "goes on" if plan.goes else f"waits {seconds} s",
            f", not to {','.join(sorted(avoids))}" if avoids else "",
        )

    # -- when things change ------------------------------------------------------------------------

    async def look(self) -> None:
        """Lift what need not be any more, and wake jobs for which there is room, by Slurm's priority."""
        if not self._context.is_fresh:
            return
        await self._wake_blind()
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

    async def _wake_blind(self) -> None:
        """The API answers again."""
        for job_id in sorted(self._blind)[:MOST_AT_ONCE]:
            job = await self._slurm.waiting(job_id)
            if job is not None and job.until and not _is_owners(job):
                await self._slurm.steer(job, avoids=job.avoids, seconds=0, until=0)
            self._blind.discard(job_id)

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
            joblog.of(log, job_id).info("begins when its owner or Slurm wants it to")
            self.waiting.pop(job_id, None)
            if job.avoids:
                await self._slurm.steer(job, avoids=(), seconds=None, until=0)
            return
        try:
            await self._follow(waiting, job, plan, 0 if job.until else None)
        except errors.SlurmUnavailable:
            raise
        except errors.SlurmError as error:
            joblog.of(log, job_id).info("is left as it is: %s", error.message)
            self.waiting.pop(job_id, None)

    async def recover(self) -> None:
        """Take back what an earlier penstockd set: whom there is still no room for is refused anew."""
        for job_id in await self._slurm.put_off():
            job = await self._slurm.waiting(job_id)
            if job is not None and not _is_owners(job):
                await self._slurm.steer(job, avoids=(), seconds=0 if job.until else None, until=0)

    # -- what is known -----------------------------------------------------------------------------

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


def _is_owners(job: jobs.Job) -> bool:
    """Whether the time for which the job waits is another than we set."""
    return bool(job.until) and job.begins > job.until + OWNERS_SLACK


def _changes(waiting: Waiting, plan: exclusions.Plan) -> bool:
    """Whether the job could go where it is kept from going, or go at all."""
    return plan.goes and (waiting.sleeps or bool(waiting.avoids - plan.avoids))
