"""Violations as text for people and as metrics for Prometheus' textfile collector."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.audit import invariants, snapshots


def as_text(violations: Iterable[snapshots.Violation]) -> str:
    lines = []
    for one in violations:
        name = invariants.INVARIANTS.get(one.invariant, "")
        lines.append(f"{one.invariant} {name}: {one.kind}: {one.subject}")
        lines += [f"    {line}" for line in one.evidence]
    return "\n".join(lines)


def as_metrics(violations: Iterable[snapshots.Violation], *, known: bool, at: float) -> str:
    """Zeros are written, too: an alert on a missing series never fires."""
    found = tuple(violations)
    lines = [
        "# HELP penstock_invariant_violations Proven violations of an invariant.",
        "# TYPE penstock_invariant_violations gauge",
    ]
    for name in invariants.INVARIANTS:
        count = sum(one.invariant == name for one in found)
        lines.append(f'penstock_invariant_violations{{invariant="{name}"}} {count}')
    lines += [
        "# HELP penstock_check_known Whether every side answered the latest look.",
        "# TYPE penstock_check_known gauge",
        f"penstock_check_known {int(known)}",
        "# HELP penstock_check_timestamp_seconds When both worlds were looked at last.",
        "# TYPE penstock_check_timestamp_seconds gauge",
        f"penstock_check_timestamp_seconds {at:.0f}",
    ]
    return "\n".join(lines) + "\n"
