"""Requeues jobs that are RUNNING in Slurm, but have no launcher and no pod.

A slurmctld that is stopped between a job's admission and its launch has the job as RUNNING and never starts
its script. Slurm itself looks for such jobs only when their nodes register. A job that is older than
slurmctld is requeued sooner: a live launcher reconnects within seconds, unless the site's Prolog is slow.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
from collections.abc import Iterable

from penstock import errors, joblog
from penstock.bridge.context import Context

log = logging.getLogger(__name__)

ROUNDS_TO_COME = 10  # sweeps in which a launcher may be missing: longer than Slurm's own search
ROUNDS_AFTER_RESTART = 2  # the same for a job that is older than the running slurmctld
NEVER_CAME = "requeued: RUNNING in Slurm, but its launcher never connected"
ENDED = "cancelled: RUNNING in Slurm, but its launcher never connected, and it may not be requeued"


@dataclasses.dataclass
class Unattended:
    """Counts sweeps in a row in which a running job had neither launcher nor pod."""

    context: Context
    rounds: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)

    async def look(self, running_without_pods: Iterable[int]) -> None:
        missing = [job_id for job_id in running_without_pods if not self.context.store.is_attended(job_id)]
        self.rounds = collections.Counter({one: self.rounds[one] + 1 for one in missing})
        for job_id in missing:
            if await self._is_due(job_id):
                await self._requeue(job_id)

    async def _is_due(self, job_id: int) -> bool:
        rounds = self.rounds[job_id]
        if ROUNDS_AFTER_RESTART < rounds <= ROUNDS_TO_COME:
            return await self.context.slurm.is_older_than_controller(job_id)
        return rounds > ROUNDS_TO_COME

    async def _requeue(self, job_id: int) -> None:
        joblog.of(log, job_id).warning("is %s", NEVER_CAME)
        await self.context.slurm.set_comment(job_id, NEVER_CAME)
        try:
            await self.context.slurm.requeue(job_id)
        except errors.SlurmUnavailable:
            raise
        except errors.SlurmError as error:
            joblog.of(log, job_id).warning("is %s: %s", ENDED, error.message)
            await self.context.slurm.set_comment(job_id, ENDED)
            await self.context.slurm.cancel(job_id)
