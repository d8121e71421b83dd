"""A short storm with a fixed seed: the long ones are `make soak MINUTES=…`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e import semantics
from tests.soak import running

SEED = 20
SECONDS = 25.0


@pytest.fixture(scope="session")
def lab(stormy_lab: semantics.Lab) -> semantics.Lab:
    """The lab of the storm."""
    return stormy_lab


def test_jobs_that_may_not_run_twice_run_once(lab: semantics.Lab, tmp_path: Path) -> None:
    """Others' pods, cancels and kills of penstockd cost none of them; `make soak ONCE=1` for longer."""
    report = running.run(lab, seed=SEED, seconds=SECONDS, events=tmp_path / "events.jsonl", once=True)
    assert (sorted(report.violations), report.faults) == ([], [])
    assert sum(report.ends.values()) >= 5


def test_a_short_storm(lab: semantics.Lab, tmp_path: Path) -> None:
    """Nothing is lost, doubled, orphaned or booked twice, at any look and at the end."""
    report = running.run(lab, seed=SEED, seconds=SECONDS, events=tmp_path / "events.jsonl")
    assert (sorted(report.violations), report.faults) == ([], [])
    assert report.looks > report.blind
    assert sum(report.ends.values()) >= 5
