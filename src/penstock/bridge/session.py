"""One launcher's job, from its pods to its end: launch, run, end, while the launcher is heard.

A launcher that loses its connection comes back and attaches to the gang that it was told of.
"""

from __future__ import annotations

import asyncio
import dataclasses

from penstock import errors
from penstock.bridge import podrequests, protocols
from penstock.bridge.context import Context
from penstock.bridge.end import Ending
from penstock.bridge.gang import GangRefused
from penstock.bridge.launch import Launch, Launching
from penstock.bridge.run import Run, Running
from penstock.model import jobs, launches
from penstock.model.reasons import OutcomeKind, not_started


@dataclasses.dataclass(frozen=True)
class Sessions:
    """Serves launchers."""

    context: Context
    launching: Launching
    running: Running
    ending: Ending

    async def serve(
        self,
        launcher: protocols.Launcher,
        allocation: jobs.Allocation,
        request: launches.LaunchRequest,
        *,
        attaching: bool,
        sent: dict[int, int],
    ) -> None:
        """Until the job has ended or the launcher has gone. `sent` are the bytes that the launcher has of
        each stream.
        """
        with self.context.store.attending(allocation.identity.job_id):
            try:
                request = podrequests.allowed(
                    request, allocation.partition, self.context.settings, runs=attaching
                )
            except errors.UsageError as error:
                await self.launching.attempts.begin(allocation, request)
                remedy = f" ({error.hint})" if error.hint else ""
                refused = not_started(OutcomeKind.NOT_ALLOWED, f"{error.message}{remedy}")
                await self.ending.tell(Launch(launcher, allocation, request), refused)
                return
            launch = Launch(launcher, allocation, request, announced=attaching)
            await self._converse(launch, sent, attaching=attaching)

    async def _converse(self, launch: Launch, sent: dict[int, int], *, attaching: bool) -> None:
        run = self.running.prepare(launch, sent)
        job = asyncio.create_task(self._lead(launch, run, attaching=attaching))
        tasks = (job, asyncio.create_task(run.listen()), asyncio.create_task(run.deliver_signals()))
        try:
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
            if job.done():
                job.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _lead(self, launch: Launch, run: Run, *, attaching: bool) -> None:
        try:
            outcome = await self.launching.start(launch, attaching=attaching)
        except GangRefused as error:
            outcome = error.outcome
        if outcome is None:
            outcome = await run.until_end()
        await self.ending.tell(launch, outcome)
