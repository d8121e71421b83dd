"""What follows the end of a job's pods: the record, the reason for its owner, a requeue where the cluster and
not the job is to blame, and the launcher's exit code.
"""

from __future__ import annotations

import logging

from penstock import crashpoints, errors, joblog
from penstock.bridge import attemptfiles, slurmcalls
from penstock.bridge.context import Context
from penstock.bridge.launch import Launch
from penstock.kube import reflectors, types
from penstock.model import audits, jobs, sentences, states
from penstock.model.reasons import Outcome

log = logging.getLogger(__name__)

END_SECONDS = 60.0  # between two looks at a requeued job whose launcher Slurm should have ended
ROUNDS_TO_END = 2  # so many looks in a row find it running before it is requeued again


class Ending:
    """Tells ends."""

    def __init__(self, context: Context, attempts: attemptfiles.AttemptRecords) -> None:
        self._context, self._attempts = context, attempts

    async def tell(self, launch: Launch, outcome: Outcome) -> None:
        """Until the launcher knows its exit code or Slurm has ended it."""
        crashpoints.reach("end.seen")
        outcome = outcome.as_asked() if launch.stopped else outcome
        reason, identity = sentences.outcome(outcome), launch.identity
        text = reason or f"exit code {outcome.exit_code}"
        self._context.store.note(launch.job_id, "ended", text, kind=outcome.kind)
        self._context.meter.ended(outcome)
        await self.record(identity, outcome, launch.gang)
        crashpoints.reach("end.noted")
        if reason:
            await launch.launcher.note(reason)
            await self._comment(identity, reason)
            crashpoints.reach("end.commented")
        if outcome.requeue:
            await self._requeue(launch, outcome)
        self._context.store.job(launch.job_id).end = audits.End(
            job_id=identity.job_id,
            restart=identity.restart,
            exit_code=outcome.exit_code,
            signal=outcome.signal,
            kind=outcome.kind,
            reason=reason,
        )
        if outcome.signal:
            await launch.launcher.die(outcome.signal)
        else:
            await launch.launcher.exit(outcome.exit_code)
        crashpoints.reach("end.told")

    async def record(self, identity: jobs.JobIdentity, outcome: Outcome, gang: tuple[types.Pod, ...]) -> None:
        """For the job's results: its end, and its pods as they are now."""
        cached = (self._context.pods.objects.get(reflectors.key_of(pod.metadata)) for pod in gang)
        await self._attempts.ended(identity, outcome, [pod for pod in cached if pod is not None])

    async def _comment(self, identity: jobs.JobIdentity, text: str) -> None:
        """What slurmctld does not take is left to the collector, who puts it into the accounting."""
        slurm = self._context.slurm
        try:
            await slurmcalls.when_there(self._context, lambda: slurm.set_comment(identity.job_id, text))
        except errors.SlurmError as error:
            joblog.of(log, identity.job_id).warning("cannot set its comment: %s", error.message)
            await self._attempts.untold(identity)

    async def _requeue(self, launch: Launch, outcome: Outcome) -> None:
        """Returns when the job ends after all: its owner does not let it run twice."""
        has_begun = launch.announced and outcome.began
        if not has_begun and launch.allocation.requeue is not True:
            await slurmcalls.set_requeue(self._context, launch.job_id, allowed=True)
        while await self._is_requeued(launch):
            await self._until_forgotten(launch.identity)

    async def _is_requeued(self, launch: Launch) -> bool:
        """Whether Slurm runs the job again; the launcher then ends by Slurm's hand."""
        slurm, launch.requeued = self._context.slurm, True
        try:
            await slurmcalls.when_there(self._context, lambda: slurm.requeue(launch.job_id))
        except errors.SlurmError as error:
            launch.requeued = False
            joblog.of(log, launch.job_id).info("ends instead of being requeued: %s", error.message)
            return False
        crashpoints.reach("end.requeued")
        return True

    async def _until_forgotten(self, identity: jobs.JobIdentity) -> None:
        """The launcher must not ask again: it stays until Slurm ends it. Only a slurmctld that went down with
        its memory of the requeue, or whose successor never had it, still has this very attempt running.
        """
        runs = 0
        while runs < ROUNDS_TO_END:
            await self._context.time.sleep(END_SECONDS)
            try:
                job = await self._context.slurm.live_job(identity.job_id)
            except errors.SlurmError as error:
                joblog.of(log, identity.job_id).info("was requeued, and nobody knows more: %s", error.message)
                continue
            is_same = job is not None and job.identity == identity and job.state == states.JobState.RUNNING
            runs = runs + 1 if is_same else 0
        joblog.of(log, identity.job_id).warning("is requeued again: Slurm has forgotten that it was")
