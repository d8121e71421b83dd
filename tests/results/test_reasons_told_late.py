"""Comments that the collector adds to Slurm's accounting."""

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
def test_reason_is_added_to_accounting(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, end: dict[str, Any], said: list[str]
) -> None:
    """For a job that has ended, not for a requeued one."""
    told: list[str] = []

    async def note(slurm_conf: str, job_id: int, text: str) -> None:
        told.append(text)

    monkeypatch.setattr(accounting, "set_comment", note)
    found = attempts.End(at=1050.0, exit_code=1, reason="because", **end)
    assert stage.collect(stage.attempt(end=found))
    assert told == said
