"""Fetches a job's output from its pod and sends it to the launcher, for files that pods cannot see.

The container's log is not used because kubelets rotate it. The agent writes the output to files in the pod,
an exec reads them from an offset, and the agent ends only after the launcher has written everything
(docs/decisions/0006). After a restart of penstockd the launcher tells how much it has. Images that run their
own entrypoint have no agent; their output comes from the log.
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

END_SECONDS = 3.0  # from the log's end until the container's end is known
AT_ONCE, LONGEST = 0.2, 5.0  # seconds between two tries
STDOUT = 1  # the exec channel of stdout
TRIES = 10  # failures without a byte before the output is given up
FORBIDDEN = 0.1  # counted for a 403: an API server that has just started forbids everything for a while
INCOMPLETE = "the container ended before the last of its output could be fetched"
GIVEN_UP = "the rest of the output cannot be read in the container and is lost"


@dataclasses.dataclass
class Output:
    """The output of a job for one connection of its launcher."""

    launcher: protocols.Launcher
    container: Container
    follower: Follower
    clock: clock.Clock
    sent: dict[int, int]
    """Bytes of each stream that the launcher has."""
    synced: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    """Set when the launcher has written everything."""
    ended: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    """Set when the container has ended: nothing more can be fetched."""

    async def fetch(self, streams: Sequence[int]) -> None:
        """Send all output to the launcher, with a note if some is lost; then let the agent end."""
        if await self.follower.started(self.container.pod) is not None:
            return
        ways = (functools.partial(self._collect, stream) for stream in streams)
        whole = await asyncio.gather(*(self._persist(way) for way in ways))
        if not all(whole):
            await self.launcher.note(INCOMPLETE if self.ended.is_set() else GIVEN_UP)
        await self.launcher.sync()
        await self.synced.wait()
        crashpoints.reach("run.output-written")
        acknowledge = functools.partial(self.container.touch, f"{wellknown.OUTPUT_MOUNT}/collected")
        await self._persist(acknowledge, tries=math.inf)  # without it the agent would never end

    async def _persist(self, attempt: Callable[[], Awaitable[None]], *, tries: float = TRIES) -> bool:
        """Try until it succeeds. False if the container has ended or `tries` are used up."""
        delay, failures = AT_ONCE, 0.0
        while not self.ended.is_set() and failures < tries:
            before = dict(self.sent)
            try:
                await attempt()
                return True
            except errors.KubeError as error:
                log.debug("output of %s was interrupted: %s", self.container.pod.metadata.name, error.message)
                progress = self.sent != before
                failures = 0 if progress else failures + _weight(error)
                delay = AT_ONCE if progress else min(delay * 2, LONGEST)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), delay)
        return False

    async def _collect(self, stream: int) -> None:
        """Read one stream: the command's stdout. Its stderr has only errors of the command itself."""
        printed = self.container.agent("collect", str(stream), str(self.sent[stream]))
        async for channel, chunk in printed:
            if channel == STDOUT:
                await self.launcher.output(chunk, stream)
                crashpoints.reach("run.output-sent")
                self.sent[stream] += len(chunk)

    async def follow_log(self) -> None:
        """Send the container's log as the job's stdout, from where an earlier connection stopped."""
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
                log.debug("log is not available yet: %s", error.message)
                delay = AT_ONCE if self.sent[1] != before else delay
                await self.clock.sleep(max(delay, error.retry_after))
                delay = min(delay * 2, LONGEST)

    async def _has_ended(self) -> bool:
        """Whether the log ended with the container and was not just interrupted."""
        try:
            await asyncio.wait_for(self.ended.wait(), END_SECONDS)
        except TimeoutError:
            return False
        return True


def _weight(error: errors.KubeError) -> float:
    """How much of a try the error costs."""
    if isinstance(error, errors.KubeUnavailable):
        return 0.0
    return FORBIDDEN if isinstance(error, errors.KubeNotAllowed) else 1.0
