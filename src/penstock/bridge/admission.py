"""Admission: may the job start on the nodes that Slurm gave it? Asked by PrologSlurmctld.

Yes reserves the room. After a no Slurm requeues the job without holding it or draining a node. Its comment is
set to the reason, and the job is steered to other nodes, delayed, or cancelled if it could never start. Every
step may be repeated after a crash: it finds what was done before.
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

FIRST_WAIT = 12  # seconds, as long as Slurm itself delays a requeued job: its credential's lifetime and 1 s
LONGEST_WAIT = 120
CLOCK_SLACK = 0.05  # slurmctld may run on another host
PENDING_LOOKS, PENDING_SECONDS = 20, 0.5  # until a refused job is PENDING again

API_UNAVAILABLE = Refusal(kind=RefusalKind.API_UNAVAILABLE)


class Admission:
    def __init__(
        self,
        context: Context,
        *,
        placements: placement.Placements,
        attempts: attemptfiles.AttemptRecords,
        steering: retries.Steering,
    ) -> None:
        self._context, self._placements = context, placements
        self._attempts, self._steering = attempts, steering
        self._followups: dict[int, asyncio.Task[None]] = {}

    # -- the answer --------------------------------------------------------------------------------

    async def decide(
        self, identity: jobs.JobIdentity, *, found: Sequence[Refusal] = ()
    ) -> tuple[Refusal, ...]:
        """Why the job cannot start now; empty if it can. `found` are refusals by the hook itself."""
        next_second = self._next_second()
        job_id = identity.job_id
        await self._cancel_followup(job_id)
        self._context.store.job(job_id).uid = identity.uid
        refusals = tuple(found) or await self.admit(identity)
        if not refusals:
            crashpoints.reach("admit.held")
            self._context.store.note(job_id, "admitted")
            self._context.meter.admitted()
            return ()
        refusals = self._dated(job_id, refusals)
        text = sentences.refusals(refusals)
        self._context.store.note_refusal(job_id, refusals, text)
        self._context.meter.refused(refusals[0])
        joblog.of(log, job_id).info("%s", text)
        if (left := next_second - self._context.time.now()) > 0:
            await self._context.time.sleep(left)
        return refusals

    def _dated(self, job_id: int, refusals: tuple[Refusal, ...]) -> tuple[Refusal, ...]:
        """The refusals with the time since when the job has been refused for each."""
        before, now = self._context.store.job(job_id).refusals, self._context.wall_clock()
        known = [next((old.since for old in before if one.is_same(old)), now) for one in refusals]
        return tuple(
            msgspec.structs.replace(one, since=since) for one, since in zip(refusals, known, strict=True)
        )

    def _next_second(self) -> float:
        """Start of the next whole second. Slurm orders accounting records by whole seconds, and 24.11 adds a
        spurious one when it requeues a job. Within the second of the job's submission that one would be the
        newest, and PENDING forever.
        """
        return self._context.time.now() + 1 - self._context.wall_clock() % 1 + CLOCK_SLACK

    # -- is there room? ----------------------------------------------------------------------------

    async def admit(self, identity: jobs.JobIdentity) -> tuple[Refusal, ...]:
        """Why the job cannot start on its nodes now; empty if it can, and then the room is reserved."""
        job_id = identity.job_id
        if not self._context.is_fresh:
            self._steering.api_unavailable(job_id)
            return (API_UNAVAILABLE,)
        job = self._context.store.job(job_id)
        job.uid, job.is_admitting = identity.uid, True
        try:
            await self._attempts.wait_for_collector(identity)
            details = await self._context.slurm.details(job_id)
            allocation = details.allocation(identity)
            if not details.may_go_back:  # changed by its owner while it waited
                await self._context.slurm.let_wait(job_id)
            place = self._placements.of(allocation.partition)
            view = await place.look(allocation)
            is_cancelled = details.is_over or not job.is_admitting
        except (errors.KubeError, TimeoutError) as error:
            joblog.of(log, job_id).info("is not admitted: %s", error or "the API did not answer in time")
            self._steering.api_unavailable(job_id)
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
        await self._restore_comment(job_id, details.own_comment)
        return ()

    async def _earlier_pods(self, identity: jobs.JobIdentity, submitted: int) -> tuple[Refusal, ...]:
        """Delete pods of earlier attempts, which must not run beside this one; a refusal for each.

        This includes pods of a forgotten job whose id Slurm has given to this one.
        """
        pods = self._context.pods.by(podview.BY_JOB, identity.job_id)
        if not pods and not self._context.store.is_attended(identity.job_id):
            await self._attempts.close(identity)  # the forgotten job's; this one has not begun
        left = [
            pod
            for pod in pods
            if not podview.belongs_to(pod, identity) or podview.is_older_than(pod, submitted)
        ]
        for pod in left:
            await podremoval.delete(self._context, pod)
        return tuple(Refusal(kind=RefusalKind.EARLIER_POD, pod=pod.metadata.name) for pod in left)

    async def _restore_comment(self, job_id: int, own: str | None) -> None:
        """Set the job's comment back to its owner's. A failure does not keep the job from starting."""
        if own is None:
            return
        try:
            await self._context.slurm.set_comment(job_id, own)
        except errors.SlurmError as error:
            joblog.of(log, job_id).info("keeps the comment of its last refusal: %s", error.message)

    # -- after a no --------------------------------------------------------------------------------

    async def follow_up(self, job_id: int, refusals: tuple[Refusal, ...]) -> None:
        """Steer, delay or cancel a refused job, in the background: the hook has its answer."""
        await self._cancel_followup(job_id)
        text = sentences.refusals(refusals)
        is_final = any(one.is_final for one in refusals)
        work = self._cancel_job(job_id, text) if is_final else self._retry_later(job_id, text)
        task = self._followups[job_id] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._followups.pop(job_id, None))

    async def _cancel_followup(self, job_id: int) -> None:
        """Stop the follow-up of an earlier refusal: Slurm tries the job again, and a follow-up that waited
        for slurmctld would now change a running job.
        """
        task = self._followups.get(job_id)
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _retry_later(self, job_id: int, text: str) -> None:
        """Set the job's comment; steer it to other nodes, or delay it, longer after repeated refusals."""
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
            joblog.of(log, job_id).warning("could not be delayed: %s", error.message)

    async def _cancel_job(self, job_id: int, text: str) -> None:
        """Cancel a job that can never start, once it is back in the queue: a failing PrologSlurmctld makes
        Slurm requeue even a job that was cancelled meanwhile. If this fails, the next refusal tries again.
        """
        slurm = self._context.slurm
        try:
            await slurm.set_comment(job_id, text)
        except errors.SlurmError as error:
            joblog.of(log, job_id).warning("cannot set its comment: %s", error.message)
        try:
            await self._until_pending(job_id)
            await slurm.cancel(job_id)
        except errors.SlurmError as error:
            joblog.of(log, job_id).warning("could not be cancelled: %s", error.message)

    async def _until_pending(self, job_id: int) -> None:
        """Wait for the job to be requeued: only then Slurm accepts a start time."""
        for _ in range(PENDING_LOOKS):
            job = await self._context.slurm.live_job(job_id)
            if job is None or job.state == states.JobState.PENDING:
                return
            await self._context.time.sleep(PENDING_SECONDS)


def wait_after(refusals: int) -> int:
    """Seconds until the next try after so many refusals in a row."""
    return min(FIRST_WAIT << min(max(refusals - 1, 0), 10), LONGEST_WAIT)
