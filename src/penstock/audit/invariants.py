"""All invariants that one look can show to be broken."""

from __future__ import annotations

from penstock.audit import booking, endrecords, orphans, snapshots

INVARIANTS = {"I1": "no double booking", "I2": "no orphans", "I5": "one record"}


def judge(seen: snapshots.Snapshot) -> tuple[snapshots.Violation, ...]:
    """What this look shows; a suspicion until another look shows the same."""
    return (*booking.judge(seen), *orphans.judge(seen), *endrecords.judge(seen))
