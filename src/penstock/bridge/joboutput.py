"""A job's output on its way to files that pods cannot see: fetched from the pod, handed to the launcher.

Not from the container's log: kubelets rotate that, and what was put away is lost. The agent keeps the output
in files of the pod's own, a command in the container reads them from an offset on, and the agent waits with
its end until it is told that the launcher has written everything (docs/decisions/0006). A penstockd that is
killed changes nothing: the launcher knows how far it got. Only an image that runs its own entrypoint has no
agent; there the log is all there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import math
from collections.abc import Awaitable, Callable, Sequence

from penstock import clock, crashpoints, errors, wellknown
from penstock.bridge import protocols
from penstock.bridge.container import Container
from penstock.bridge.follower import Follower

log = logging.getLogger(__name__)

END_SECONDS = 3.0  # how long after the log's end the container's end may become known
AT_ONCE, LONGEST = 0.2, 5.0  # seconds between two tries
STDOUT = 1  # the channel of a command's output
TRIES = 10  # how often the command may fail without a byte before the output is given up
FORBIDDEN = 0.1  # of such a failure: an API server that has just started forbids everything for a while
INCOMPLETE = "the container ended before the last of its output could be fetched"
GIVEN_UP = "the rest of the output cannot be read in the container and is lost"


@dataclasses.dataclass
class Output:
    """The output of one job, over one connection to its launcher."""

    launcher: protocols.Launcher
    container: Container
    follower: Follower
    clock: clock.Clock
    sent: dict[int, int]
    """Bytes that the launcher has of each stream."""
    synced: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    """The launcher has written all that it was sent."""
    ended: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    """The container has ended: what is not here by now cannot be fetched any more."""

    async def fetch(self, streams: Sequence[int]) -> None:
        """Until all of it is with the launcher, and the agent knows; what cannot be had is said."""
        if await self.follower.started(self.container.pod) is not None:
            return
        ways = (functools.partial(self._collect, stream) for stream in streams)
        whole = await asyncio.gather(*(self._persist(way) for way in ways))
        if not all(whole):
            await self.launcher.note(INCOMPLETE if self.ended.is_set() else GIVEN_UP)
        await self.launcher.sync()
        await self.synced.wait()
        crashpoints.reach("run.output-written")
        await self._persist(self._acknowledge, tries=math.inf)  # without it the agent would never end

    async def _persist(self, attempt: Callable[[], Awaitable[None]], *, tries: float = TRIES) -> bool:
        """Try until it succeeds; False when it cannot any more, or fails again and again."""
        delay, failures = AT_ONCE, 0.0
        while not self.ended.is_set() and failures < tries:
            before = dict(self.sent)
            try:
                await attempt()
                return True
            except errors.KubeError as error:
                log.debug("output of %s broke off: %s", self.container.pod.metadata.name, error.message)
                progress = self.sent != before
                failures = 0 if progress else failures + _weight(error)
                delay = AT_ONCE if progress else min(delay * 2, LONGEST)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), delay)
        return False

    async def _collect(self, stream: int) -> None:
        """All of one stream: what the command prints on its stdout; its stderr would be its own troubles."""
        printed = self.container.agent("collect", str(stream), str(self.sent[stream]))
        async for channel, chunk in printed:
            if channel == STDOUT:
                await self.launcher.output(chunk, stream)
                crashpoints.reach("run.output-sent")
                self.sent[stream] += len(chunk)

    async def _acknowledge(self) -> None:
        await self.container.touch(f"{wellknown.OUTPUT_MOUNT}/collected")

    async def follow_log(self) -> None:
        """The container's log into the job's stdout, from where an earlier connection stopped."""
        delay = AT_ONCE
        while True:
            before = self.sent[1]
            try:
                at = 0
                async for chunk in self.container.log():
                    fresh = chunk[max(self.sent[1] - at, 0) :]
                    at += len(chunk)
                    if fresh:
                        await self.launcher.output(fresh, 1)
                        self.sent[1] += len(fresh)
                if await self._has_ended():
                    return
            except errors.KubeError as error:
                if isinstance(error, errors.KubeNotFound) and self.ended.is_set():
                    return  # before that, its kubelet may not have heard of the pod yet
                log.debug("output not there yet: %s", error.message)
                delay = AT_ONCE if self.sent[1] != before else delay
                await self.clock.sleep(max(delay, error.retry_after))
                delay = min(delay * 2, LONGEST)

    async def _has_ended(self) -> bool:
        """Whether a log that is at its end was at the job's end, too, and not just broken off."""
        try:
            await asyncio.wait_for(self.ended.wait(), END_SECONDS)
        except TimeoutError:
            return False
        return True


def _weight(error: errors.KubeError) -> float:
    """How much it says against another try."""
    if isinstance(error, errors.KubeUnavailable):
        return 0.0
    return FORBIDDEN if isinstance(error, errors.KubeNotAllowed) else 1.0
