"""How long a job that found no room waits before it is tried again: a little longer each time, and visibly
so.

The first wait is Slurm's own (its credential's lifetime and a second). The count is only a courtesy and may
be forgotten: after a restart of penstockd a job is simply tried a little sooner.
"""

from __future__ import annotations

FIRST = 12
LONGEST = 120
LATEST = 10_000  # jobs that are remembered: of those that are cancelled while they wait nobody tells us


class Backoff:
    """Refusals in a row, by job."""

    def __init__(self) -> None:
        self._refusals: dict[int, int] = {}

    def refused(self, job_id: int) -> int:
        """Count one more; the seconds until the next try."""
        count = self._refusals.pop(job_id, 0) + 1
        self._refusals[job_id] = count
        if len(self._refusals) > LATEST:
            del self._refusals[next(iter(self._refusals))]
        return min(FIRST << min(count - 1, 10), LONGEST)

    def count(self, job_id: int) -> int:
        return self._refusals.get(job_id, 0)

    def forget(self, job_id: int) -> None:
        self._refusals.pop(job_id, None)
