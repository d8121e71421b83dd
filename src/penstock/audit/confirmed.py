"""A finding counts only if it persists across two snapshots.

Slurm and Kubernetes cannot be read in one instant, so a single snapshot proves nothing. A double booking or a
wrong record counts at its second sight. penstockd removes orphans within half a minute, and pods take time to
be made: those findings count only if they persist for longer than that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from penstock.audit import snapshots

PATIENCE: Mapping[str, float] = {"I1": 0.0, "I2": 60.0, "I5": 0.0}
"""Seconds that a finding must persist to be a violation, by invariant; always at least two looks."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Confirmed violations, and findings that are not confirmed yet."""

    violations: tuple[snapshots.Violation, ...]
    suspicions: tuple[snapshots.Violation, ...]


class Confirmer:
    """Remembers since when each finding has been seen without interruption."""

    def __init__(self, patience: Mapping[str, float] = PATIENCE) -> None:
        self._patience = patience
        self._since: dict[tuple[str, str], float] = {}

    def look(self, found: Iterable[snapshots.Violation], *, at: float) -> Verdict:
        """Add one snapshot's findings, seen `at` this time of a monotonic clock."""
        suspicions = tuple(found)
        before = self._since
        self._since = {_key(one): before.get(_key(one), at) for one in suspicions}
        proven = tuple(
            one
            for one in suspicions
            if _key(one) in before and at - before[_key(one)] >= self._patience.get(one.invariant, 0.0)
        )
        return Verdict(proven, tuple(one for one in suspicions if one not in proven))


def _key(one: snapshots.Violation) -> tuple[str, str]:
    return one.kind, one.subject
