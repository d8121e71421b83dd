"""The conversation with a launcher: make or find the job's pods, pass output and signals, tell the end.

API trouble while launching is not told to the launcher as an end: it is tried again for as long as Slurm lets
the job live.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import signal

from penstock import clock, errors
from penstock.bridge import bridge as bridging
from penstock.bridge import gang, outcomes
from penstock.daemon import connections
from penstock.kube import types
from penstock.model import jobs, launches
from penstock.render import pods as rendering

log = logging.getLogger(__name__)

ENDING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP))
REFUSED = 1  # exit code of a job that Kubernetes did not take; the reason is in its output and comment


def request_of(message: connections.Message) -> launches.LaunchRequest:
    """What the launcher sent, as data."""
    return launches.LaunchRequest(
        interpreter=message.one("interpreter"),
        script=message.one("script"),
        arguments=message.all("argument"),
        environment=message.all("environment"),
        workdir=message.one("workdir"),
        stdout=message.one("stdout"),
        stderr=message.one("stderr"),
    )


@dataclasses.dataclass
class LaunchSession:
    """One launcher's connection."""

    connection: connections.Connection
    bridge: bridging.Bridge
    clock: clock.Clock
    stopped: bool = False

    async def serve(self, message: connections.Message) -> None:
        """Until the job has ended or the launcher has gone."""
        request = request_of(message)
        allocation = await self.bridge.allocation_for(message.number("slurm_job_id"), self.connection.uid)
        try:
            pod = await self._pod(message, allocation, request)
        except gang.GangRefused as error:
            await self._tell_end(allocation, outcomes.Outcome(REFUSED, f"not started: {error.message}"))
            return
        if pod is None:
            await self._tell_end(allocation, outcomes.VANISHED)
            return
        await self.connection.send("started")
        await self._see_through(pod, allocation, request, skip=message.number("skip"))

    async def _pod(
        self, message: connections.Message, allocation: jobs.Allocation, request: launches.LaunchRequest
    ) -> types.Pod | None:
        delay = 0.2
        while True:
            try:
                if message.one("attach") == b"1":
                    return await self.bridge.attach(allocation)
                return await self.bridge.launch(allocation, request)
            except errors.KubeUnavailable as error:
                log.warning("job %d waits for the API: %s", allocation.identity.job_id, error.message)
                await self.clock.sleep(delay)
                delay = min(delay * 2, 5.0)

    async def _see_through(
        self, pod: types.Pod, allocation: jobs.Allocation, request: launches.LaunchRequest, *, skip: int
    ) -> None:
        """Whichever comes first: the job's end, or the launcher's."""
        ending = asyncio.create_task(self._until_end(pod, request, skip=skip))
        listening = asyncio.create_task(self._until_peer_leaves(pod))
        try:
            await asyncio.wait((ending, listening), return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                outcome = ending.result()
                gone_by_us = self.stopped and outcome == outcomes.VANISHED
                await self._tell_end(allocation, outcomes.STOPPED if gone_by_us else outcome)
        finally:
            for task in (ending, listening):
                task.cancel()
            await asyncio.gather(ending, listening, return_exceptions=True)

    async def _until_end(
        self, pod: types.Pod, request: launches.LaunchRequest, *, skip: int
    ) -> outcomes.Outcome:
        if rendering.written_by_pod(request.stdout, self.bridge.settings):
            return await self.bridge.end_of(pod)
        streaming = asyncio.create_task(self._stream_output(pod, skip=skip))
        try:
            outcome = await self.bridge.end_of(pod)
            await asyncio.wait((streaming,), timeout=30)
            return outcome
        finally:
            streaming.cancel()
            await asyncio.gather(streaming, return_exceptions=True)

    async def _stream_output(self, pod: types.Pod, *, skip: int) -> None:
        """The container's log into the job's output, from where an earlier connection stopped."""
        sent = 0
        while True:
            try:
                at = 0
                async for chunk in self.bridge.output_of(pod):
                    fresh = chunk[max(skip + sent - at, 0) :]
                    at += len(chunk)
                    if fresh:
                        await self.connection.send("output", fresh)
                        sent += len(fresh)
                return
            except errors.KubeNotFound:
                return
            except errors.KubeError as error:
                log.debug("output of %s not there yet: %s", pod.metadata.name, error.message)
                await self.clock.sleep(0.2)

    async def _until_peer_leaves(self, pod: types.Pod) -> None:
        while (message := await self.connection.receive()) is not None:
            if message.verb == "signal":
                await self._pass_on(signal.Signals(message.number("number")), pod)

    async def _pass_on(self, number: signal.Signals, pod: types.Pod) -> None:
        if number not in ENDING:
            await self.connection.send("note", f"{number.name} is not passed into pods yet")
            return
        self.stopped = True
        try:
            await self.bridge.stop(pod)
        except errors.KubeError as error:
            log.warning("cannot stop pod %s now, the Epilog will: %s", pod.metadata.name, error.message)

    async def _tell_end(self, allocation: jobs.Allocation, outcome: outcomes.Outcome) -> None:
        if outcome.reason:
            await self.connection.send("note", outcome.reason)
            await self._comment(allocation.identity.job_id, outcome.reason)
        await self.connection.send("exit", str(outcome.exit_code))

    async def _comment(self, job_id: int, text: str) -> None:
        try:
            await self.bridge.slurm.set_comment(job_id, text)
        except errors.SlurmError as error:
            log.warning("cannot comment job %d: %s", job_id, error.message)
