"""Troubles of the host that look like a user's own mistake: a name service that is not up yet does not know
the owner, a home that is not mounted yet is not there. They are waited out, and held against a file only when
they have lasted.

What lasts is one owner's trouble, not one file's: whoever has a hundred files waits once for all.
"""

from __future__ import annotations

from penstock.intake import claims

SECONDS = 600.0
_GAP = 3 * claims.LONGEST_WAIT  # seen again after longer than any pause between two tries: another trouble


class Patience:
    """Since when one kind of trouble has lasted for each owner, without a moment in which it was over."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, float]] = {}

    def is_over(self, uid: int, now: float) -> bool:
        """Whether the trouble, which is there now, has lasted so long that it will not pass by itself."""
        began, last = self._seen.get(uid, (now, now))
        if now - last > _GAP:
            began = now
        self._seen[uid] = began, now
        return now - began >= SECONDS

    def restore(self, uid: int) -> None:
        """Nothing is wrong with this owner."""
        self._seen.pop(uid, None)
