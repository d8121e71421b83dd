"""Host problems that look like a user's mistake: a name service that is not up yet does not know the owner, a
home that is not mounted yet does not exist. A file is refused only after such a problem has lasted.

The grace period is per owner, not per file: an owner of a hundred files waits once for all of them.
"""

from __future__ import annotations

from penstock.intake import claims

SECONDS = 600.0
_GAP = 3 * claims.LONGEST_WAIT  # longer than any pause between two tries: it is a new problem


class GracePeriod:
    """Since when one kind of problem has lasted without a break, by owner."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, float]] = {}

    def has_expired(self, uid: int, now: float) -> bool:
        """Whether the problem, which is present now, has lasted for the whole grace period."""
        began, last = self._seen.get(uid, (now, now))
        if now - last > _GAP:
            began = now
        self._seen[uid] = began, now
        return now - began >= SECONDS

    def clear(self, uid: int) -> None:
        self._seen.pop(uid, None)
