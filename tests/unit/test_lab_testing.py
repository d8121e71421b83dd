"""What tests believe of a lab: its accounting hears of things later than slurmctld."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock_lab import paths, testing

LATER = "2026-11-16T07:00:09"


@pytest.mark.parametrize("sent_back", ["REQUEUED", "PENDING"])
def test_an_attempt_that_was_sent_back_is_not_the_jobs_end(
    sent_back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has an end of its own, and slurmdbd may know of no other yet when slurmctld says COMPLETED."""
    answers = iter(
        [
            "",
            f"2026-11-16T07:00:01|{sent_back}|{sent_back}|0:0",
            "Unknown|RUNNING|RUNNING|0:0",
            f"{LATER}|COMPLETED|COMPLETED|0:0",
        ]
    )
    asked: list[tuple[str, ...]] = []

    def run(lab: object, argv: Sequence[str], **options: Any) -> testing.Result:
        asked.append(tuple(argv))
        return subprocess.CompletedProcess(argv, 0, stdout=f"{next(answers)}\n", stderr="")

    monkeypatch.setattr(testing.RunningLab, "run", run)
    monkeypatch.setattr(testing, "POLL_SECONDS", 0.0)
    lab = testing.RunningLab(paths.LabPaths(Path("/lab")), "ada")
    assert lab.accounted("7") == ["COMPLETED", "0:0"]
    assert asked[0][-2:] == ("--jobs=7", "--format=End,State,State,ExitCode")
