"""Run: waits for a job's end, fetches its output and delivers signals that Slurm sends to its launcher."""

from __future__ import annotations

import asyncio
import logging
import random
import signal

from penstock import crashpoints, errors
from penstock.bridge import joboutput, podremoval, protocols
from penstock.bridge.calls import Calls
from penstock.bridge.container import Container
from penstock.bridge.context import Context
from penstock.bridge.follower import Follower
from penstock.bridge.launch import FORBIDDEN_SECONDS, Launch
from penstock.kube import podview, reflectors
from penstock.model.reasons import Outcome
from penstock.render import pods as rendering

log = logging.getLogger(__name__)

LAST_OUTPUT_SECONDS = 60.0  # for the rest of a log to arrive after the container's end
UNDER_WAY_SECONDS = 10.0  # the same for fetched output, for which the agent waits
MOST_SIGNALS = 100  # queued; beyond that, equal ones are merged


class Run:
    """One launcher's job; `sent` are the bytes of each stream that the launcher has."""

    def __init__(
        self, context: Context, follower: Follower, launch: Launch, calls: Calls, sent: dict[int, int]
    ) -> None:
        self._context, self._follower, self._calls = context, follower, calls
        self._launch, self._launcher, self._sent = launch, launch.launcher, sent
        self._output: joboutput.Output | None = None
        self._signals: asyncio.Queue[protocols.Signal] = asyncio.Queue()

    # -- end and output ----------------------------------------------------------------------------

    async def until_end(self) -> Outcome:
        """Serve the job's calls, send its output to the launcher, and return its outcome."""
        if self._launch.request.pod.own_entrypoint:
            return await self._until_end_with_output()
        serving = asyncio.create_task(self._calls.serve())
        try:
            return await self._until_end_with_output()
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    async def _until_end_with_output(self) -> Outcome:
        request, first = self._launch.request, self._launch.gang[0]
        streams = rendering.fetched(request, self._context.settings)
        if not streams and not request.pod.own_entrypoint:
            return await self._end()
        container = Container(self._context.kube, first)
        self._output = joboutput.Output(
            self._launcher, container, self._follower, self._context.time, self._sent
        )
        patience = UNDER_WAY_SECONDS if streams else LAST_OUTPUT_SECONDS
        streaming = asyncio.create_task(self._output.fetch(streams) if streams else self._output.follow_log())
        try:
            outcome = await self._end()
            self._output.ended.set()
            _, late = await asyncio.wait((streaming,), timeout=patience)
            if late:
                await self._launcher.note(joboutput.INCOMPLETE)
            return outcome
        finally:
            streaming.cancel()
            await asyncio.gather(streaming, return_exceptions=True)

    async def _end(self) -> Outcome:
        store, job_id = self._context.store, self._launch.job_id
        return await self._follower.end_of(self._launch.gang, lambda: store.is_leaving(job_id))

    # -- messages of the launcher ------------------------------------------------------------------

    async def listen(self) -> None:
        """Handle the launcher's messages until its connection ends."""
        while (message := await self._launcher.hear()) is not None:
            if isinstance(message, protocols.Signal):
                await self._queue(message)
            elif isinstance(message, protocols.Printed):
                self._calls.printed(message)
            elif isinstance(message, protocols.Ended):
                self._calls.ended(message)
            elif self._output is not None:
                self._output.synced.set()

    async def _queue(self, received: protocols.Signal) -> None:
        crashpoints.reach("signal.received")
        if self._launch.requeued:  # Slurm kills the launcher of a requeued job
            await self._launcher.die(int(received.number))
        elif self._signals.qsize() >= MOST_SIGNALS and self._is_queued(received):
            await self._launcher.delivered()  # merged with the queued one, as the kernel does it
        else:
            self._signals.put_nowait(received)

    def _is_queued(self, wanted: protocols.Signal) -> bool:
        waiting = [self._signals.get_nowait() for _ in range(self._signals.qsize())]
        for each in waiting:
            self._signals.put_nowait(each)
        return wanted in waiting

    async def deliver_signals(self) -> None:
        """Deliver signals in order once the gang is placed, and tell the launcher of each."""
        await self._launch.placed.wait()
        while True:
            current = await self._signals.get()
            patience = self._context.time.now() + FORBIDDEN_SECONDS
            while not await self._deliver(current, patience=patience):
                await self._context.time.sleep(random.uniform(0.5, 1.0))  # noqa: S311  # jitter, not a secret
                if self._is_starting():
                    current = self._most_urgent(current)
            await self._launcher.delivered()

    def _most_urgent(self, first: protocols.Signal) -> protocols.Signal:
        """A queued SIGTERM, for it ends the job; else the first signal."""
        waiting = [first]
        while not self._signals.empty():
            waiting.append(self._signals.get_nowait())
        chosen, *others = sorted(waiting, key=lambda each: each.number != signal.SIGTERM)
        for each in others:
            self._signals.put_nowait(each)
        return chosen

    async def _deliver(self, current: protocols.Signal, *, patience: float) -> bool:
        """Signal the container; if a SIGTERM cannot be delivered, delete the pod. False: try again.

        A 403 may be temporary until the time `patience`.
        """
        container = Container(self._context.kube, self._launch.gang[0])
        agent = not self._launch.request.pod.own_entrypoint
        try:
            await container.signal(current.number, everyone=current.everyone, agent=agent)
            crashpoints.reach("signal.delivered")
        except errors.KubeError as error:
            log.warning("cannot deliver %s: %s", current.number.name, error.message)
            if current.number == signal.SIGTERM:
                return await self._stop_pod()
            forbidden = isinstance(error, errors.KubeNotAllowed) and self._context.time.now() < patience
            is_temporary = forbidden or isinstance(error, errors.KubeUnavailable)
            return not is_temporary and not self._is_starting()
        return True

    def _is_starting(self) -> bool:
        """Whether the container has not started by the cache: pulling its image may take minutes."""
        meta = self._launch.gang[0].metadata
        pod = self._context.pods.objects.get(reflectors.key_of(meta))
        return pod is not None and pod.metadata.uid == meta.uid and not podview.has_started(pod)

    async def _stop_pod(self) -> bool:
        """Delete the pod: the kubelet sends SIGTERM, and SIGKILL after Slurm's KillWait. False: try again."""
        self._launch.stopped = True
        grace = self._context.settings.kill_wait
        try:
            await podremoval.delete(self._context, self._launch.gang[0], grace=grace)
        except errors.KubeError as error:
            log.warning("cannot stop the pod: %s", error.message)
            self._launch.stopped = False
            return not isinstance(error, errors.KubeUnavailable | errors.KubeNotAllowed)
        return True
