"""A job runs: its end is waited for, its output fetched, and what Slurm sends to the launcher passed on."""

from __future__ import annotations

import asyncio
import logging
import random
import signal

from penstock import crashpoints, errors
from penstock.bridge import joboutput, podremoval, protocols
from penstock.bridge.container import Container
from penstock.bridge.context import Context
from penstock.bridge.follower import Follower
from penstock.bridge.launch import FORBIDDEN_SECONDS, Launch
from penstock.kube import podview, reflectors
from penstock.model.reasons import Outcome
from penstock.render import pods as rendering

log = logging.getLogger(__name__)

LAST_OUTPUT_SECONDS = 60.0  # how long the rest of a log may take to arrive after the container's end
UNDER_WAY_SECONDS = 10.0  # the same for output that is fetched: the agent does not end before it is
MOST_SIGNALS = 100  # that wait for delivery, each for itself; of more, one of a kind


class Running:
    """What every run needs."""

    def __init__(self, context: Context, follower: Follower) -> None:
        self.context, self.follower = context, follower

    def prepare(self, launch: Launch, sent: dict[int, int]) -> Run:
        """The run of a launch; `sent` are the bytes that the launcher has of each stream."""
        return Run(self, launch, sent)


class Run:
    """One launcher's job from the moment its gang is placed."""

    def __init__(self, running: Running, launch: Launch, sent: dict[int, int]) -> None:
        self._context, self._follower = running.context, running.follower
        self._launch, self._launcher, self._sent = launch, launch.launcher, sent
        self._output: joboutput.Output | None = None
        self._signals: asyncio.Queue[protocols.Signal] = asyncio.Queue()

    # -- end and output ----------------------------------------------------------------------------

    async def until_end(self) -> Outcome:
        """The job's outcome; what it printed is with the launcher by then, as far as it can be had."""
        request, first = self._launch.request, self._launch.gang[0]
        streams = rendering.fetched(request, self._context.settings)
        if not streams and not request.pod.own_entrypoint:
            return await self._end()
        container = Container(self._context.kube, first)
        self._output = joboutput.Output(
            self._launcher, container, self._follower, self._context.time, self._sent
        )
        way = self._output.fetch(streams) if streams else self._output.follow_log()
        patience = UNDER_WAY_SECONDS if streams else LAST_OUTPUT_SECONDS
        streaming = asyncio.create_task(way)
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

    # -- what the launcher says --------------------------------------------------------------------

    async def listen(self) -> None:
        """Until the launcher has gone."""
        while (word := await self._launcher.hear()) is not None:
            if isinstance(word, protocols.Signal):
                await self._take(word)
            elif self._output is not None:
                self._output.synced.set()

    async def _take(self, word: protocols.Signal) -> None:
        crashpoints.reach("signal.received")
        if self._launch.requeued:  # Slurm ends what it has requeued
            await self._launcher.die(int(word.number))
        elif self._signals.qsize() >= MOST_SIGNALS and self._waits(word):
            await self._launcher.delivered()  # by the one that waits, as a kernel would do it
        else:
            self._signals.put_nowait(word)

    def _waits(self, wanted: protocols.Signal) -> bool:
        """Whether one like it is among those that are not delivered yet."""
        waiting = [self._signals.get_nowait() for _ in range(self._signals.qsize())]
        for each in waiting:
            self._signals.put_nowait(each)
        return wanted in waiting

    async def deliver_signals(self) -> None:
        """One after the other, once there is somebody to deliver them to; the launcher is told of each."""
        await self._launch.placed.wait()
        while True:
            word = await self._signals.get()
            patience = self._context.time.now() + FORBIDDEN_SECONDS
            while not await self._passed_on(word, patience=patience):
                await self._context.time.sleep(random.uniform(0.5, 1.0))  # noqa: S311  # jitter, not a secret
                if self._is_starting():
                    word = self._most_urgent(word)
            await self._launcher.delivered()

    def _most_urgent(self, first: protocols.Signal) -> protocols.Signal:
        """A SIGTERM that has come meanwhile, for it is the job's end; else all in the order they came."""
        waiting = [first]
        while not self._signals.empty():
            waiting.append(self._signals.get_nowait())
        chosen, *others = sorted(waiting, key=lambda each: each.number != signal.SIGTERM)
        for each in others:
            self._signals.put_nowait(each)
        return chosen

    async def _passed_on(self, word: protocols.Signal, *, patience: float) -> bool:
        """Into the pod; if that cannot be done, a signal that ends the job ends the pod. False: try again.

        A right that is missing may be there again soon, until `patience` is over.
        """
        container = Container(self._context.kube, self._launch.gang[0])
        agent = not self._launch.request.pod.own_entrypoint
        try:
            await container.signal(word.number, everyone=word.everyone, agent=agent)
            crashpoints.reach("signal.delivered")
        except errors.KubeError as error:
            log.warning("cannot pass %s on: %s", word.number.name, error.message)
            if word.number == signal.SIGTERM:
                return await self._stopped()
            forbidden = isinstance(error, errors.KubeNotAllowed) and self._context.time.now() < patience
            passing = forbidden or isinstance(error, errors.KubeUnavailable)
            return not passing and not self._is_starting()
        return True

    def _is_starting(self) -> bool:
        """Whether the script has not begun, as far as we see: its image may take minutes to come."""
        meta = self._launch.gang[0].metadata
        pod = self._context.pods.objects.get(reflectors.key_of(meta))
        return pod is not None and pod.metadata.uid == meta.uid and not podview.has_started(pod)

    async def _stopped(self) -> bool:
        """Whether the pod's end was asked for (kubelet's SIGTERM, then SIGKILL after Slurm's patience); as
        long as the API is away or forbids it, nobody can.
        """
        self._launch.stopped = True
        grace = self._context.settings.kill_wait
        try:
            await podremoval.delete(self._context, self._launch.gang[0], grace=grace)
        except errors.KubeError as error:
            log.warning("cannot stop the pod: %s", error.message)
            self._launch.stopped = False
            return not isinstance(error, errors.KubeUnavailable | errors.KubeNotAllowed)
        return True
