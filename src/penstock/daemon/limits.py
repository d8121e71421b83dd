"""Limits per uid: penstockd's socket is open to everybody on the host, and no user may block another.

A uid may have a number of open requests, a number of bytes in them, and a time to send each. Requests over a
limit are answered with "wait", and hooks and launchers try again. The connection of a running job's launcher
is limited per job instead, but it counts as an open request until Slurm has confirmed the job.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Iterator

from penstock import errors
from penstock.hooks import wire

REQUESTS = 64  # open requests of one uid
EARLY = 256  # launchers of one uid that wait until penstockd has read the running jobs
SESSIONS = 4  # connections of one job's launcher: it may reconnect before the old connection's end is seen
BYTES = 4 * wire.MAX_FRAME  # in requests of one uid that are not yet attributed to a job
REQUEST_SECONDS = 20.0


class TooMany(errors.PenstockError):
    """A uid or job is over one of its limits."""


class ConnectionLimits:
    """Counters of the limits. Each method returns a context, and raises TooMany over the limit."""

    def __init__(self) -> None:
        self._requests: collections.Counter[int] = collections.Counter()
        self._early: collections.Counter[int] = collections.Counter()
        self._sessions: collections.Counter[int] = collections.Counter()
        self._bytes: collections.Counter[int] = collections.Counter()
        self.parsing: collections.defaultdict[int, asyncio.Lock] = collections.defaultdict(asyncio.Lock)
        """By uid: one large message is parsed at a time."""

    def request(self, uid: int) -> contextlib.AbstractContextManager[None]:
        return _counted(self._requests, uid, REQUESTS, f"uid {uid} has too many open requests")

    def early(self, uid: int) -> contextlib.AbstractContextManager[None]:
        """A launcher that waits until penstockd has read the running jobs."""
        return _counted(self._early, uid, EARLY, f"uid {uid} has too many waiting launchers")

    def buffered(self, uid: int, size: int) -> contextlib.AbstractContextManager[None]:
        """`size` bytes of a request."""
        return _counted(self._bytes, uid, BYTES, f"uid {uid} has too many bytes in open requests", size)

    def session(self, job_id: int) -> contextlib.AbstractContextManager[None]:
        return _counted(self._sessions, job_id, SESSIONS, f"job {job_id} has too many launchers")


@contextlib.contextmanager
def _counted(
    counter: collections.Counter[int], key: int, limit: int, complaint: str, size: int = 1
) -> Iterator[None]:
    if counter[key] + size > limit:
        raise TooMany(complaint)
    counter[key] += size
    try:
        yield
    finally:
        counter[key] -= size
        if not counter[key]:
            del counter[key]
