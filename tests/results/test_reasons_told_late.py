"""What the collector adds to Slurm's accounting."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.model import attempts
from penstock.slurm import accounting
from tests.results.stage import Stage


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ({"untold": True}, ["because"]),
        ({"untold": True, "requeue": True}, []),
        ({}, []),
    ],
)
def test_a_reason_that_slurmctld_did_not_take_goes_into_the_accounting(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, end: dict[str, Any], said: list[str]
) -> None:
    """Of a job that has ended, and not of one that was sent back to the queue."""
    told: list[str] = []

    async def note(slurm_conf: str, job_id: int, text: str) -> None:
        told.append(text)

    monkeypatch.setattr(accounting, "set_comment", note)
    found = attempts.End(at=1050.0, exit_code=1, reason="because", **end)
    assert stage.collect(stage.attempt(end=found))
    assert told == said
