"""What a container wrote: a file per run, a time per chunk, followers that are told instead of polling.

Like a kubelet's, a log that has grown too large begins anew: whoever asks later gets only what came since.
"""

from __future__ import annotations

import asyncio
import bisect
import io
import logging
import os
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.devcluster import times
from penstock.devcluster.bell import Bell

_CHUNK: Final = 65536
ROTATED_AT: Final = 10 * 2**20  # a kubelet's default; what was before can be read by nobody who comes later
_DRAIN_SECONDS: Final = 2.0
_logger = logging.getLogger(__name__)


class Log:
    """Output of one run of one container, read from a pipe into a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.begin = 0
        """Where the log begins for whoever asks now."""
        self.ended = asyncio.Event()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._offsets: list[int] = []
        self._times: list[float] = []
        self._news = Bell()
        self._source = -1

    def open_pipe(self) -> int:
        """The end that the container writes to; the caller closes its copy once the container has one."""
        self._source, sink = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._source, False)
        asyncio.get_running_loop().add_reader(self._source, self._take)
        return sink

    def _take(self) -> None:
        chunk = os.read(self._source, _CHUNK)
        try:
            self.write(chunk) if chunk else self.close()
        except OSError as error:  # the disk is full, say: the container must not block on its output
            _logger.warning("the rest of %s is lost: %s", self.path, error)
            self.close()

    def write(self, chunk: bytes) -> None:
        self._offsets.append(self.size)
        self._times.append(time.time())
        os.write(self._file, chunk)
        self.size += len(chunk)
        if self.size - self.begin > ROTATED_AT:
            self.begin = self.size
        self._news.ring()

    async def drained(self) -> None:
        """Wait for the end of the output; a stray process that holds the pipe open is not waited for long."""
        try:
            await asyncio.wait_for(self.ended.wait(), _DRAIN_SECONDS)
        except TimeoutError:
            self.close()

    def close(self) -> None:
        """No more will come."""
        if self._source >= 0:
            asyncio.get_running_loop().remove_reader(self._source)
            os.close(self._source)
            self._source = -1
        if not self.ended.is_set():
            os.close(self._file)
        self.ended.set()
        self._news.ring()

    def forget(self) -> None:
        """Remove the file; whoever is reading it can go on."""
        self.close()
        self.path.unlink(missing_ok=True)

    def offset_at(self, moment: float) -> int:
        """Where the output of that moment starts."""
        index = bisect.bisect_left(self._times, moment)
        return self._offsets[index] if index < len(self._offsets) else self.size

    def time_at(self, offset: int) -> float:
        return self._times[max(0, bisect.bisect_right(self._offsets, offset) - 1)]

    def offset_of_tail(self, file: int, lines: int) -> int:
        """Where the last lines start, searched backwards."""
        end, missing = self.size, lines
        if lines <= 0 or end == 0:
            return end
        if os.pread(file, 1, end - 1) == b"\n":
            end -= 1
        while end > self.begin:
            start = max(self.begin, end - _CHUNK)
            block = os.pread(file, end - start, start)
            if block.count(b"\n") >= missing:
                place = len(block)
                for _ in range(missing):
                    place = block.rindex(b"\n", 0, place)
                return start + place + 1
            missing -= block.count(b"\n")
            end = start
        return self.begin

    async def more_than(self, offset: int) -> None:
        """Wait until there is more than this, or the end."""
        while self.size <= offset and not self.ended.is_set():
            await self._news.wait()


@dataclass(frozen=True, slots=True)
class Wish:
    """What a reader asked for."""

    follow: bool = False
    tail: int | None = None
    since: float | None = None
    limit: int | None = None
    timestamps: bool = False


async def stream(log: Log, wish: Wish) -> AsyncGenerator[bytes, None]:
    """The output as asked for; with follow, until the container ends and to its last byte."""
    file = os.open(log.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        left = wish.limit
        async for chunk in _chunks(log, file, wish):
            if left is not None:
                chunk = chunk[:left]
                left -= len(chunk)
            if chunk:
                yield chunk
            if left == 0:
                return
    finally:
        os.close(file)


async def _chunks(log: Log, file: int, wish: Wish) -> AsyncGenerator[bytes, None]:
    offset = log.offset_of_tail(file, wish.tail) if wish.tail is not None else log.begin
    if wish.since is not None:
        offset = max(offset, log.offset_at(wish.since))
    at_line_start = True
    while True:
        chunk = os.pread(file, _CHUNK, offset)
        if chunk:
            yield _stamped(log, offset, chunk, at_line_start) if wish.timestamps else chunk
            offset += len(chunk)
            at_line_start = chunk.endswith(b"\n")
        elif not wish.follow or (log.ended.is_set() and log.size <= offset):
            return
        else:
            await log.more_than(offset)


def _stamped(log: Log, offset: int, chunk: bytes, at_line_start: bool) -> bytes:
    pieces = []
    for line in io.BytesIO(chunk):
        prefix = times.micro(log.time_at(offset)).encode() + b" " if at_line_start else b""
        pieces.append(prefix + line)
        offset += len(line)
        at_line_start = line.endswith(b"\n")
    return b"".join(pieces)
