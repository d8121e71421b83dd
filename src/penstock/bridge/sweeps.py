"""Removes orphans (I2), and restores the reservations of running jobs after a restart.

A pod is removed only if its job is missing in two of Slurm's lists some time apart, a query for this job
confirms that the attempt does not run, and no launcher of it is connected. Without an answer, or with a stale
cache, nothing is done (I4).
"""

from __future__ import annotations

import dataclasses
import logging

from penstock import crashpoints, errors, joblog, wellknown
from penstock.bridge import attemptfiles, podremoval, retries, unattended
from penstock.bridge.context import Context
from penstock.judge import rights
from penstock.kube import podview, types
from penstock.model import jobs, states

log = logging.getLogger(__name__)

INTERVAL = 15.0
INTERNAL = 500  # HTTP status; also the API's answer if a required webhook is down


@dataclasses.dataclass
class Sweeper:
    """A finding counts only if the previous round had it, too."""

    context: Context
    attempts: attemptfiles.AttemptRecords
    steering: retries.Steering
    bridged_partitions: frozenset[str]
    suspects: set[str] = dataclasses.field(default_factory=set)
    ending: set[jobs.JobIdentity] = dataclasses.field(default_factory=set)
    """Attempts that seemed to have ended in the previous round."""

    def __post_init__(self) -> None:
        self.unattended = unattended.Unattended(self.context)

    async def recover(self) -> None:
        """After a start: restore the reservations of running jobs."""
        for job in await self.context.slurm.live_jobs():
            if job.partition in self.bridged_partitions and job.holds_resources:
                await self._hold(job)

    async def _hold(self, job: jobs.LiveJob) -> None:
        try:
            details = await self.context.slurm.details(job.identity.job_id)
        except errors.SlurmUnavailable:
            raise
        except errors.SlurmError as error:
            joblog.of(log, job.identity.job_id).info("ended during recovery: %s", error.message)
            return
        allocation = details.allocation(job.identity)
        self.context.store.reserve(allocation)
        self.steering.admitted(allocation, details.avoids)
        crashpoints.reach("recover.held")

    async def sweep(self) -> None:
        """One round: release reservations of ended jobs, and remove pods that are suspects again.

        Pods and reservations are read before Slurm is asked, so newer ones are not judged by an older answer.
        """
        ours = [pod for pod in self.context.pods.objects.values() if podview.job_id(pod) is not None]
        reserved = [one.identity.job_id for one in self.context.store.reservations()]
        begun = self.attempts.under_way()
        if not self.context.pods.fresh or not (ours or reserved or begun):
            self.suspects, self.ending = set(), set()
            return
        live = {job.identity.job_id: job for job in await self.context.slurm.live_jobs()}
        for job_id in reserved:
            if job_id not in live or not live[job_id].holds_resources:
                await self._forget(job_id)
        found = {pod.metadata.uid for pod in rights.orphans(ours, live)}
        for pod in ours:
            if pod.metadata.uid in found & self.suspects and not pod.metadata.deletion_timestamp:
                await self._try_to_remove(pod)
        self.suspects = found
        await self._close(begun, live)
        with_pods = {podview.job_id(pod) for pod in ours}
        running = [one for one in reserved if one in live and live[one].state == states.JobState.RUNNING]
        await self.unattended.look(one for one in running if one not in with_pods)

    async def _forget(self, job_id: int) -> None:
        """Release the reservation if a query for this job confirms that it holds nothing."""
        job = await self.context.slurm.live_job(job_id)
        if job is None or not job.holds_resources:
            self.context.store.unreserve(job_id)

    async def _try_to_remove(self, pod: types.Pod) -> None:
        """Remove the pod; one that cannot be deleted does not end the sweep."""
        try:
            await self._remove(pod)
        except errors.SlurmUnavailable:
            raise
        except (errors.KubeError, errors.SlurmError) as error:
            if isinstance(error, errors.KubeUnavailable) and error.status != INTERNAL:
                raise
            log.warning("pod %s cannot be removed: %s", pod.metadata.name, error.message)

    async def _remove(self, pod: types.Pod) -> None:
        """Delete the pod unless a query for its job, or a connected launcher, shows that it is live."""
        job_id = podview.job_id(pod)
        if job_id is None or self.context.store.is_attended(job_id):
            return
        job = await self.context.slurm.live_job(job_id)
        if rights.has_right(pod.metadata.labels, job):
            return
        log.warning("removing pod %s/%s: no live job", pod.metadata.namespace, pod.metadata.name)
        crashpoints.reach("sweep.found")
        await podremoval.delete(self.context, pod)

    async def _close(self, begun: tuple[jobs.JobIdentity, ...], live: dict[int, jobs.LiveJob]) -> None:
        """Hand over attempts whose end was not seen: twice not running in Slurm, and without a pod."""
        left = {
            (job_id, pod.metadata.labels.get(wellknown.LABEL_RESTART))
            for pod in self.context.pods.objects.values()
            if (job_id := podview.job_id(pod)) is not None
        }
        over = {identity for identity in begun if not _runs(identity, live)}
        for identity in over & self.ending:
            if (identity.job_id, str(identity.restart)) not in left and await self._is_over(identity):
                joblog.of(log, identity.job_id).info("attempt %d has ended unseen", identity.restart)
                await self.attempts.close(identity)
        self.ending = over

    async def _is_over(self, identity: jobs.JobIdentity) -> bool:
        """Whether a query for this job confirms the attempt's end, and no launcher is connected."""
        job = await self.context.slurm.live_job(identity.job_id)
        ended = job is None or not _runs(identity, {identity.job_id: job})
        return ended and not self.context.store.is_attended(identity.job_id)


def _runs(identity: jobs.JobIdentity, live: dict[int, jobs.LiveJob]) -> bool:
    job = live.get(identity.job_id)
    return job is not None and job.holds_resources and job.identity.restart == identity.restart
