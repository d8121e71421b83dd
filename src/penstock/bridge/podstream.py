"""A standing conversation with a job's pod: one exec of hooks/serve.sh, and another one whenever it breaks.

Frames are a line of words, the last of which is the length of the bytes that follow. What is sent while there
is no connection is dropped: the pod says after every `hello` what it waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable

from penstock import clock, errors
from penstock.bridge.container import Container

log = logging.getLogger(__name__)

VERSION = "1"
STDOUT = 1
LONGEST_LINE = 4096
LARGEST_BODY = 4 * 1024 * 1024
FIRST_DELAY, LONGEST_DELAY = 0.2, 10.0  # seconds between two tries
BEAT_SECONDS = 240.0  # servers on the way close connections that are silent for longer
TRIES = 10  # refusals in a row without a frame before it is given up


@dataclasses.dataclass(frozen=True)
class Frame:
    words: tuple[str, ...]
    body: bytes = b""


class BadFrame(errors.PenstockError):
    """The pod sent something that is not a frame: its owner's processes can write anything there."""


class PodStream:
    """`on_frame` is awaited with every frame of the pod, in order; `hello` begins each connection."""

    def __init__(
        self, container: Container, time: clock.Clock, on_frame: Callable[[Frame], Awaitable[None]]
    ) -> None:
        self._container, self._clock, self._on_frame = container, time, on_frame
        self._outgoing: asyncio.Queue[bytes] | None = None

    def send(self, *words: str | int, body: bytes = b"") -> None:
        """Send a frame, if there is a connection."""
        if self._outgoing is not None:
            line = " ".join(map(str, (*words, len(body))))
            self._outgoing.put_nowait(line.encode("ascii") + b"\n" + body)

    async def run(self) -> None:
        """Talk until cancelled, or until the pod has refused for good."""
        delay, refusals = FIRST_DELAY, 0
        while refusals < TRIES:
            talked = False
            try:
                async with contextlib.aclosing(self._frames()) as frames:
                    async for frame in frames:
                        talked = True
                        await self._on_frame(frame)
            except (errors.KubeUnavailable, errors.KubeNotAllowed, BadFrame) as error:
                self._log(error)
            except errors.KubeError as error:
                self._log(error)
                refusals += 1
            delay, refusals = (FIRST_DELAY, 0) if talked else (min(delay * 2, LONGEST_DELAY), refusals)
            await self._clock.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311  # jitter, not a secret

    def _log(self, error: errors.PenstockError) -> None:
        log.debug("the conversation with %s broke: %s", self._container.pod.metadata.name, error.message)

    async def _frames(self) -> AsyncGenerator[Frame, None]:
        """The frames of one connection."""
        async with self._container.converse("serve") as talk:
            outgoing = self._outgoing = asyncio.Queue()
            sending = asyncio.create_task(_pass_on(outgoing, talk.send))
            try:
                received = bytearray()
                async with contextlib.aclosing(talk.printed()) as printed:
                    async for channel, chunk in printed:
                        if channel == STDOUT:
                            received += chunk
                            for frame in whole(received):
                                yield frame
            finally:
                self._outgoing = None
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)


async def _pass_on(outgoing: asyncio.Queue[bytes], send: Callable[[bytes], Awaitable[None]]) -> None:
    while True:
        data = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BEAT_SECONDS):
                data = await outgoing.get()
        await send(data)


def whole(received: bytearray) -> list[Frame]:
    """Takes the whole frames out of the buffer."""
    found: list[Frame] = []
    while (end := received.find(b"\n", 0, LONGEST_LINE)) >= 0:
        words = received[:end].decode("ascii", "replace").split()
        size = int(words[-1]) if words and words[-1].isascii() and words[-1].isdigit() else -1
        if not 0 <= size <= LARGEST_BODY:
            raise BadFrame(f"a pod sent no frame: {bytes(received[:40])!r}")
        if len(received) < end + 1 + size:
            return found
        found.append(Frame(tuple(words[:-1]), bytes(received[end + 1 : end + 1 + size])))
        del received[: end + 1 + size]
    if len(received) > LONGEST_LINE:
        raise BadFrame(f"a pod sent no frame: {bytes(received[:40])!r}")
    return found
