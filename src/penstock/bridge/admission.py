"""PrologSlurmctld asks: may the job start on the nodes that Slurm gave it? And what follows a no.

Yes reserves the room. No makes Slurm requeue the job by itself, without holding it or draining a node; after
that the job is told why it waits, and is steered to other nodes, put off, or cancelled where it could never
start. All of it may be asked again after a crash: what was done is found, not repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from penstock import crashpoints, errors, joblog
from penstock.bridge import attemptfiles, placement, podremoval, retries
from penstock.bridge.context import Context
from penstock.kube import podview
from penstock.model import jobs, sentences, states
from penstock.model.reasons import Refusal, RefusalKind

log = logging.getLogger(__name__)

FIRST_WAIT = 12  # seconds: Slurm's own, its credential's lifetime and a second
LONGEST_WAIT = 120
CLOCK_SLACK = 0.05  # slurmctld may run on another host
PENDING_LOOKS, PENDING_SECONDS = 20, 0.5  # until a job that was sent back is in the queue again

API_UNAVAILABLE = Refusal(kind=RefusalKind.API_UNAVAILABLE)


class Admission:
    """Decides, and sees to what follows."""

    def __init__(
        self,
        context: Context,
        *,
        placements: placement.Placements,
        attempts: attemptfiles.AttemptRecords,
        waiting: retries.Steering,
    ) -> None:
        self._context, self._placements = context, placements
        self._attempts, self._steering = attempts, waiting
        self._followups: dict[int, asyncio.Task[None]] = {}

    # -- the answer --------------------------------------------------------------------------------

    async def decide(
        self, identity: jobs.JobIdentity, *, found: Sequence[Refusal] = ()
    ) -> tuple[Refusal, ...]:
        """Why the job cannot start now; empty when it can. `found` is what the hook itself has against it."""
        later_second = self._later_second()
        job_id = identity.job_id
        await self._cancel_followup(job_id)
        self._context.store.job(job_id).uid = identity.uid
        refusals = tuple(found) or await self.admit(identity)
        if not refusals:
            crashpoints.reach("admit.held")
            self._context.store.note(job_id, "admitted")
            self._context.meter.admitted()
            return ()
        refusals = self._since(job_id, refusals)
        text = sentences.refusals(refusals)
        self._context.store.note_refusal(job_id, refusals, text)
        self._context.meter.refused(refusals[0])
        joblog.of(log, job_id).info("%s", text)
        await self._wait_until(later_second)
        return refusals

    def _since(self, job_id: int, refusals: tuple[Refusal, ...]) -> tuple[Refusal, ...]:
        """The same, each with the moment since when the job has been refused for it."""
        before, now = self._context.store.job(job_id).refusals, self._context.wall_clock()
        known = [next((old.since for old in before if one.is_same(old)), now) for one in refusals]
        return tuple(
            msgspec.structs.replace(one, since=since) for one, since in zip(refusals, known, strict=True)
        )

    def _later_second(self) -> float:
        """Slurm tells records of a job apart by whole seconds. 24.11 makes one too many when it sends a job
        back; of the second in which the job was submitted that would be the newest, and pending for ever.
        """
        return self._context.time.now() + 1 - self._context.wall_clock() % 1 + CLOCK_SLACK

    async def _wait_until(self, moment: float) -> None:
        left = moment - self._context.time.now()
        if left > 0:
            await self._context.time.sleep(left)

    # -- is there room? ----------------------------------------------------------------------------

    async def admit(self, identity: jobs.JobIdentity) -> tuple[Refusal, ...]:
        """Why the job cannot start on its nodes now; empty when it can, and then the room is reserved."""
        job_id = identity.job_id
        if not self._context.is_fresh:
            self._steering.unseen(job_id)
            return (API_UNAVAILABLE,)
        job = self._context.store.job(job_id)
        job.uid, job.is_admitting = identity.uid, True
        try:
            await self._attempts.wait_for_collector(identity)
            details = await self._context.slurm.details(job_id)
            allocation = details.allocation(identity)
            if not details.may_go_back:  # its owner has changed that while it waited
                await self._context.slurm.let_wait(job_id)
            place = self._placements.of(allocation.partition)
            view = await place.look(allocation)
            is_cancelled = details.is_over or not job.is_admitting
        except (errors.KubeError, TimeoutError) as error:
            joblog.of(log, job_id).info("is not admitted: %s", error or "the API is slow")
            self._steering.unseen(job_id)
            return (API_UNAVAILABLE,)
        finally:
            job.is_admitting = False
        if is_cancelled:
            return (Refusal(kind=RefusalKind.CANCELLED),)
        if not details.prepared:
            return (Refusal(kind=RefusalKind.NOT_PREPARED),)
        left = await self._earlier_pods(identity, details.submitted)
        refusals = () if left else place.refusals(allocation, view)
        if refusals:
            self._steering.refused(allocation, on={one.node for one in refusals})
        if left or refusals:
            self._context.store.unreserve(job_id)
            return left or refusals
        self._context.store.reserve(allocation)
        job.refused = 0
        self._steering.admitted(allocation, details.avoids)
        await self._give_comment_back(job_id, details.own_comment)
        return ()

    async def _earlier_pods(self, identity: jobs.JobIdentity, submitted: int) -> tuple[Refusal, ...]:
        """Pods of this job from before: a job never runs beside itself, so they have to go first.

        So have those of another job that Slurm has forgotten since and given the number anew.
        """
        pods = self._context.pods.by(podview.BY_JOB, identity.job_id)
        if not pods and not self._context.store.is_attended(identity.job_id):
            await self._attempts.close(identity)  # of such a job; this one has not begun
        left = [
            pod
            for pod in pods
            if not podview.belongs_to(pod, identity) or podview.is_older_than(pod, submitted)
        ]
        for pod in left:
            await podremoval.delete(self._context, pod)
        return tuple(Refusal(kind=RefusalKind.EARLIER_POD, pod=pod.metadata.name) for pod in left)

    async def _give_comment_back(self, job_id: int, own: str | None) -> None:
        """The job starts: its comment need not say any more why it waits. If that fails it still starts."""
        if own is None:
            return
        try:
            await self._context.slurm.set_comment(job_id, own)
        except errors.SlurmError as error:
            joblog.of(log, job_id).info("keeps the comment that says why it waited: %s", error.message)

    # -- after a no --------------------------------------------------------------------------------

    async def follow_up(self, job_id: int, refusals: tuple[Refusal, ...]) -> None:
        """The hook has its answer, and Slurm sends the job back: see to the rest in the background."""
        await self._cancel_followup(job_id)
        text = sentences.refusals(refusals)
        is_final = any(one.is_final for one in refusals)
        work = self._cancel_job(job_id, text) if is_final else self._put_off(job_id, text)
        task = self._followups[job_id] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._followups.pop(job_id, None))

    async def _cancel_followup(self, job_id: int) -> None:
        """What follows the job's last refusal and is not done yet holds no more: Slurm tries it again.

        slurmctld may have been away; what it hears now would be said of a job that runs.
        """
        task = self._followups.get(job_id)
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _put_off(self, job_id: int, text: str) -> None:
        """Say why the job waits; send it to other nodes, or let it wait longer after repeated refusals."""
        slurm, count = self._context.slurm, self._context.store.job(job_id).refused
        seconds = wait_after(count)
        try:
            await slurm.say_why_it_waits(job_id, text)
            crashpoints.reach("admit.commented")
            await self._until_pending(job_id)
            goes = await self._steering.put_off(job_id, seconds, tries=count)
            if count > 1 and not goes:
                again = f" (refused {count} times, next try in {seconds} s)"
                await slurm.say_why_it_waits(job_id, text + again)
        except errors.SlurmError as error:
            joblog.of(log, job_id).warning("could not be put off: %s", error.message)

    async def _cancel_job(self, job_id: int, text: str) -> None:
        """Such a job will never start. Slurm sends a job whose PrologSlurmctld says no back to the queue,
        also one that was cancelled meanwhile: so it is cancelled there. If not, it asks again, and so do we.
        """
        slurm = self._context.slurm
        try:
            await slurm.set_comment(job_id, text)
        except errors.SlurmError as error:
            joblog.of(log, job_id).warning("is not told why it ends: %s", error.message)
        try:
            await self._until_pending(job_id)
            await slurm.cancel(job_id)
        except errors.SlurmError as error:
            joblog.of(log, job_id).warning("could not be ended: %s", error.message)

    async def _until_pending(self, job_id: int) -> None:
        """Slurm takes a start time only once the job is back in the queue."""
        for _ in range(PENDING_LOOKS):
            job = await self._context.slurm.live_job(job_id)
            if job is None or job.state == states.JobState.PENDING:
                return
            await self._context.time.sleep(PENDING_SECONDS)


def wait_after(refusals: int) -> int:
    """Seconds until a job that was refused so often in a row is tried again: a little longer each time."""
    return min(FIRST_WAIT << min(max(refusals - 1, 0), 10), LONGEST_WAIT)
