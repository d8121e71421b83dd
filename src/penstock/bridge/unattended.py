"""Jobs that run without running: Slurm says RUNNING, but no launcher came and there is no pod.

A slurmctld that is stopped between a job's admission and its launch remembers the job as running and never
starts its script. Slurm looks for such jobs when their nodes register, which may be long after. They are sent
back, sooner when slurmctld was started after the job: a launcher that lives connects again within seconds,
and only a slow Prolog of the site's can make it late.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
from collections.abc import Iterable

from penstock import errors, joblog
from penstock.bridge.context import Context

log = logging.getLogger(__name__)

ROUNDS_TO_COME = (
    10  # how many rounds of the sweeper a launcher may be missing: longer than Slurm's own search
)
ROUNDS_AFTER_RESTART = 2  # the same for a job that is older than the slurmctld of now
NEVER_CAME = "sent back: Slurm says that it runs, but its launcher never came"
ENDED = "ended: Slurm says that it runs, but its launcher never came, and it may not be requeued"


@dataclasses.dataclass
class Unattended:
    """Counts rounds in a row in which a running job had neither a launcher nor a pod."""

    context: Context
    rounds: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)

    async def look(self, running_without_pods: Iterable[int]) -> None:
        """One round over jobs that Slurm says are running and that have no pod."""
        missing = [job_id for job_id in running_without_pods if not self.context.store.is_attended(job_id)]
        self.rounds = collections.Counter({one: self.rounds[one] + 1 for one in missing})
        for job_id in missing:
            if await self._is_due(job_id):
                await self._send_back(job_id)

    async def _is_due(self, job_id: int) -> bool:
        rounds = self.rounds[job_id]
        if ROUNDS_AFTER_RESTART < rounds <= ROUNDS_TO_COME:
            return await self.context.slurm.is_older_than_controller(job_id)
        return rounds > ROUNDS_TO_COME

    async def _send_back(self, job_id: int) -> None:
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
