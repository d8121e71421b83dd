"""How much of penstockd one user can take up: the socket is open to everybody on the host.

Each user has a number of connections that have not said yet what they want, and time to
say it; what comes on top is told to try again, which hooks and launchers do. A launcher keeps its
connection for as long as its job runs and is not counted then: there are no more of those than jobs. But who
says to be one counts until Slurm has said so.
Nor can all of it be larger than a few questions of the largest kind, and those are taken apart in a thread.
Whoever says nothing, or says it too slowly, is closed. So a user can only stand in his own way.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Iterator

from penstock import errors
from penstock.hooks import wire

ASKING = 64
"""Connections of one user whose question has not been heard whole."""
EARLY = 256
"""Launchers of one user that wait for penstockd to know the jobs that run."""
SESSIONS = 4
"""Connections of one job's launcher: a new one may come before the end of the old is seen."""
BYTES = 4 * wire.MAX_FRAME
"""That penstockd keeps of one user's questions until it is known whose they are."""
SECONDS_TO_ASK = 20.0


class TooMany(errors.PenstockError):
    """One user has more connections open than anybody needs."""


class Doors:
    """Counts who is at the door."""

    def __init__(self) -> None:
        self._asking: collections.Counter[int] = collections.Counter()
        self._early: collections.Counter[int] = collections.Counter()
        self._sessions: collections.Counter[int] = collections.Counter()
        self._bytes: collections.Counter[int] = collections.Counter()
        self.parsing: collections.defaultdict[int, asyncio.Lock] = collections.defaultdict(asyncio.Lock)
        """For each user who has asked: one large message of theirs is taken apart at a time."""

    def asking(self, uid: int) -> contextlib.AbstractContextManager[None]:
        """One connection of that user, until its question is heard; TooMany when there are enough."""
        return _counted(self._asking, uid, ASKING, f"uid {uid} has too many open questions")

    def early(self, uid: int) -> contextlib.AbstractContextManager[None]:
        """One launcher that has come before its job is known; TooMany when there are enough."""
        return _counted(self._early, uid, EARLY, f"uid {uid} has too many launchers that wait")

    def keeping(self, uid: int, size: int) -> contextlib.AbstractContextManager[None]:
        """So many bytes of a question; TooMany when all of that user's are too many."""
        return _counted(self._bytes, uid, BYTES, f"uid {uid} asks for too much at once", size)

    def session(self, job_id: int) -> contextlib.AbstractContextManager[None]:
        """One launcher's connection; TooMany when the job has several already."""
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
