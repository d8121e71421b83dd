"""Container logs: a file per run; followers are notified instead of polling.

As with a kubelet, a log that has grown too large is rotated: later readers get only what was written since.
"""

from __future__ import annotations

import asyncio
import collections
import io
import logging
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

_CHUNK: Final = 65536
ROTATED_AT: Final = 10 * 2**20  # a kubelet's default
_DRAIN_SECONDS: Final = 2.0
_logger = logging.getLogger(__name__)


def ring(bell: asyncio.Event) -> None:
    """Wake all current waiters, but no later ones."""
    bell.set()
    bell.clear()


class Log:
    """Output of one run of a container, copied from a pipe into a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.begin = 0
        """Offset at which the log begins for new readers."""
        self.ended = asyncio.Event()
        self.news = asyncio.Event()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._source = -1

    def open_pipe(self) -> int:
        """The pipe's write end; the caller closes it once the container has it."""
        self._source, sink = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._source, False)
        asyncio.get_running_loop().add_reader(self._source, self._take)
        return sink

    def _take(self) -> None:
        chunk = os.read(self._source, _CHUNK)
        try:
            self.write(chunk) if chunk else self.close()
        except OSError as error:  # such as a full disk: the container must not block on its output
            _logger.warning("the rest of %s is lost: %s", self.path, error)
            self.close()

    def write(self, chunk: bytes) -> None:
        self.size += os.write(self._file, chunk)  # possibly incomplete on a full disk
        if self.size - self.begin > ROTATED_AT:
            self.begin = self.size
        ring(self.news)

    async def drained(self) -> None:
        """Wait for the end of the output; with a timeout, since a stray process may hold the pipe open."""
        try:
            await asyncio.wait_for(self.ended.wait(), _DRAIN_SECONDS)
        except TimeoutError:
            self.close()

    def close(self) -> None:
        if self._source >= 0:
            asyncio.get_running_loop().remove_reader(self._source)
            os.close(self._source)
            self._source = -1
        if not self.ended.is_set():
            os.close(self._file)
        self.ended.set()
        ring(self.news)

    def forget(self) -> None:
        """Remove the file; current readers can continue."""
        self.close()
        self.path.unlink(missing_ok=True)


def stream(
    log: Log, *, follow: bool = False, tail: int | None = None, limit: int | None = None
) -> AsyncGenerator[bytes, None]:
    """The requested output; with follow, until the container ends and to its last byte.

    The file is opened at once: a restart may replace it before the response begins.
    """
    file = log.path.open("rb", buffering=0)
    return _read(log, file, follow, tail, sys.maxsize if limit is None else limit)


async def _read(
    log: Log, file: io.FileIO, follow: bool, tail: int | None, left: int
) -> AsyncGenerator[bytes, None]:
    with file:
        offset = log.begin
        if tail is not None:
            lines = io.BytesIO(os.pread(file.fileno(), log.size - log.begin, log.begin))
            offset = log.size - sum(map(len, collections.deque(lines, maxlen=tail)))
        while left > 0:
            if chunk := os.pread(file.fileno(), min(_CHUNK, left), offset):
                yield chunk
                offset, left = offset + len(chunk), left - len(chunk)
            elif not follow or log.ended.is_set():
                return
            elif log.size <= offset:
                await log.news.wait()
