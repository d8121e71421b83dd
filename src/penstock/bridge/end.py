"""The end of a job: record and comment, a requeue if the cluster is to blame, the launcher's exit code."""

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
ROUNDS_TO_END = 2  # looks in a row that find it RUNNING before it is requeued again


class Ending:
    def __init__(self, context: Context, attempts: attemptfiles.AttemptRecords) -> None:
        self._context, self._attempts = context, attempts

    async def tell(self, launch: Launch, outcome: Outcome) -> None:
        """Record the outcome, requeue the job if the cluster is to blame, else tell the launcher."""
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
        """Record the outcome and the pods' last known state, for the job's results."""
        cached = (self._context.pods.objects.get(reflectors.key_of(pod.metadata)) for pod in gang)
        await self._attempts.ended(identity, outcome, [pod for pod in cached if pod is not None])

    async def _comment(self, identity: jobs.JobIdentity, text: str) -> None:
        """Set the job's comment. If slurmctld refuses it, the collector writes it into accounting."""
        slurm = self._context.slurm
        try:
            await slurmcalls.when_there(self._context, lambda: slurm.set_comment(identity.job_id, text))
        except errors.SlurmError as error:
            joblog.of(log, identity.job_id).warning("cannot set its comment: %s", error.message)
            await self._attempts.untold(identity)

    async def _requeue(self, launch: Launch, outcome: Outcome) -> None:
        """Requeue the job. Returns only if Slurm refuses: the job may not run twice."""
        has_begun = launch.announced and outcome.began
        if not has_begun and launch.allocation.requeue is not True:
            await slurmcalls.set_requeue(self._context, launch.job_id, allowed=True)
        while await self._is_requeued(launch):
            await self._until_forgotten(launch.identity)

    async def _is_requeued(self, launch: Launch) -> bool:
        """Whether Slurm accepts the requeue; it then kills the launcher."""
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
        """Wait for Slurm to kill the launcher. Returns if Slurm still has this attempt RUNNING: slurmctld
        was restarted and has lost the requeue.
        """
        runs = 0
        while runs < ROUNDS_TO_END:
            await self._context.time.sleep(END_SECONDS)
            try:
                job = await self._context.slurm.live_job(identity.job_id)
            except errors.SlurmError as error:
                joblog.of(log, identity.job_id).info("was requeued; its state is unknown: %s", error.message)
                continue
            is_same = job is not None and job.identity == identity and job.state == states.JobState.RUNNING
            runs = runs + 1 if is_same else 0
        joblog.of(log, identity.job_id).warning("is requeued again: Slurm has lost the first requeue")
