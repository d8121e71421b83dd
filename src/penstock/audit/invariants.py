"""All invariants that can be judged from one snapshot."""

from __future__ import annotations

from penstock.audit import booking, endrecords, orphans, snapshots

INVARIANTS = {"I1": "no double booking", "I2": "no orphans", "I5": "one record"}


def judge(seen: snapshots.Snapshot) -> tuple[snapshots.Violation, ...]:
    """This snapshot's findings, not yet confirmed by another one."""
    return (*booking.judge(seen), *orphans.judge(seen), *endrecords.judge(seen))
