"""Suspicions become violations by staying.

Two systems are never seen in one instant, so one look proves nothing. A double booking or a wrong record
counts when the next look shows it again. An orphan is found and removed by penstockd within half a minute,
and a job's pods take a moment to be made: those count only when they stay for longer than that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from penstock.audit import snapshots

PATIENCE: Mapping[str, float] = {"I1": 0.0, "I2": 60.0, "I5": 0.0}
"""Seconds from the first sight of something to its being a violation; always at least two looks."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What is proven after this look, and what may become so."""

    violations: tuple[snapshots.Violation, ...]
    suspicions: tuple[snapshots.Violation, ...]


class Confirmer:
    """Remembers since when what has been seen without a break."""

    def __init__(self, patience: Mapping[str, float] = PATIENCE) -> None:
        self._patience = patience
        self._since: dict[tuple[str, str], float] = {}

    def look(self, found: Iterable[snapshots.Violation], *, at: float) -> Verdict:
        """Take one look's suspicions, seen at that time of a clock that never goes back."""
        suspicions = tuple(found)
        before = self._since
        self._since = {_key(one): before.get(_key(one), at) for one in suspicions}
        proven = tuple(one for one in suspicions if _key(one) in before and self._is_due(one, at))
        return Verdict(proven, tuple(one for one in suspicions if one not in proven))

    def _is_due(self, one: snapshots.Violation, at: float) -> bool:
        return at - self._since[_key(one)] >= self._patience.get(one.invariant, 0.0)


def _key(one: snapshots.Violation) -> tuple[str, str]:
    return one.kind, one.subject
