"""A verdict as text for people and as metrics for Prometheus' text-file collector."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.audit import invariants, snapshots


def as_text(violations: Iterable[snapshots.Violation]) -> str:
    """A paragraph each: what is broken, of what, and the evidence line by line."""
    return "\n".join(line for one in violations for line in _lines(one))


def _lines(one: snapshots.Violation) -> list[str]:
    head = f"{one.invariant} {invariants.INVARIANTS.get(one.invariant, '')}: {one.kind}: {one.subject}"
    return [head, *(f"    {line}" for line in one.evidence)]


def as_metrics(violations: Iterable[snapshots.Violation], *, known: bool, at: float) -> str:
    """Zero is said, too: a series that is missing is an alert that never fires."""
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
