"""Serves one launcher: launch, run and end of its job, while its messages are handled.

A launcher that loses its connection reconnects and attaches to its gang.
"""

from __future__ import annotations

import asyncio
import dataclasses

from penstock import errors
from penstock.bridge import podrequests, protocols
from penstock.bridge.calls import Calls
from penstock.bridge.context import Context
from penstock.bridge.end import Ending
from penstock.bridge.follower import Follower
from penstock.bridge.gang import GangRefused
from penstock.bridge.launch import Launch, Launching
from penstock.bridge.run import Run
from penstock.model import jobs, launches
from penstock.model.reasons import OutcomeKind, not_started


@dataclasses.dataclass(frozen=True)
class Sessions:
    context: Context
    launching: Launching
    follower: Follower
    ending: Ending

    async def serve(
        self,
        launcher: protocols.Launcher,
        allocation: jobs.Allocation,
        request: launches.LaunchRequest,
        *,
        attaching: bool,
        sent: dict[int, int],
        commands: frozenset[str] = frozenset(),
    ) -> None:
        """Serve until the job ends or the launcher is gone, which has `sent` bytes of each stream and runs
        `commands`.
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
            calls = Calls(self.context, self.follower, launch, commands)
            await self._run(
                launch, Run(self.context, self.follower, launch, calls, sent), attaching=attaching
            )

    async def _run(self, launch: Launch, run: Run, *, attaching: bool) -> None:
        job = asyncio.create_task(self._run_job(launch, run, attaching=attaching))
        tasks = (job, asyncio.create_task(run.listen()), asyncio.create_task(run.deliver_signals()))
        try:
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
            if job.done():
                job.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_job(self, launch: Launch, run: Run, *, attaching: bool) -> None:
        try:
            outcome = await self.launching.start(launch, attaching=attaching)
        except GangRefused as error:
            outcome = error.outcome
        if outcome is None:
            outcome = await run.until_end()
        await self.ending.tell(launch, outcome)
