"""How attempts ended: which row of the accounting, and when slurmctld is asked instead."""

from __future__ import annotations

import msgspec
import pytest

from penstock import errors
from penstock.model import jobs
from penstock.results import endings, recordqueue
from penstock.slurm import accounting

TOLD = jobs.JobRecord(job_id=1, shown_id="1", uid=7, state="REQUEUED", end="0:0", started=99.0, ended=100.0)
"""Of an attempt of uid 7 that was launched at 99."""

UNFINISHED = msgspec.structs.replace(TOLD, state="TIMEOUT")

COMPLETED = msgspec.structs.replace(TOLD, state="COMPLETED")

CASES = {
    "its own row": ([TOLD], None, 0.0, TOLD),
    "a row without an owner, yet": ([msgspec.structs.replace(TOLD, uid=0)], None, 0.0, None),
    "a row without an owner, a moment later": ([msgspec.structs.replace(TOLD, uid=0)], COMPLETED, 5.0, None),
    "a row without an owner, still": ([msgspec.structs.replace(TOLD, uid=0)], None, 10.0, TOLD),
    "an array's row without an owner or a name": (
        [msgspec.structs.replace(TOLD, uid=0)],
        msgspec.structs.replace(COMPLETED, shown_id="9_3"),
        10.0,
        msgspec.structs.replace(TOLD, shown_id="9_3"),
    ),
    "an end without its exit code, yet": ([UNFINISHED], None, 0.0, None),
    "an end without an exit code, still": ([UNFINISHED], None, 10.0, UNFINISHED),
    "somebody else's row": ([msgspec.structs.replace(TOLD, uid=8)], None, 10.0, None),
    "root's job of that number before": (
        [msgspec.structs.replace(TOLD, uid=0, started=1.0, ended=2.0)],
        None,
        10.0,
        None,
    ),
    "no row, but a later attempt": ([msgspec.structs.replace(TOLD, job_id=2)], TOLD, 10.0, TOLD),
    "no row and an end, yet": ([msgspec.structs.replace(TOLD, job_id=2)], COMPLETED, 10.0, None),
    "no row and an end, still": ([msgspec.structs.replace(TOLD, job_id=2)], COMPLETED, 40.0, COMPLETED),
    "no row of anybody and an end, yet": ([], COMPLETED, 10.0, None),
    "no row of anybody and an end, still": ([], COMPLETED, 40.0, COMPLETED),
    "no row of anybody, but a later attempt": ([], TOLD, 10.0, TOLD),
    "no accounting": (None, COMPLETED, 10.0, COMPLETED),
    "no row and no end": ([msgspec.structs.replace(TOLD, job_id=2)], None, 40.0, None),
}


@pytest.mark.parametrize("case", CASES)
async def test_row_of_attempt(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """slurmdbd may not know the owner of an attempt that ended at once: for a moment, or ever."""
    rows, told, seconds, expected = CASES[case]

    async def ended(slurm_conf: str, job_ids: object) -> tuple[jobs.JobRecord, ...]:
        if rows is None:
            raise errors.SlurmError("Slurm accounting storage is disabled")
        return tuple(rows)

    async def remembered(slurm_conf: str, job_id: int, **which: int) -> jobs.JobRecord | None:
        return told

    monkeypatch.setattr(accounting, "ended", ended)
    monkeypatch.setattr(accounting, "remembered", remembered)
    chosen = {"1-0.json": recordqueue.Head(job_id=1, restart=0, uid=7, launched=99.0, closed=100.0)}
    found = await endings.ended("slurm.conf", chosen, 100.0 + seconds)
    assert found == ({"1-0.json": expected} if expected else {})


async def test_unavailable_slurmctld_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attempts that accounting knows keep their state."""

    async def ended(slurm_conf: str, job_ids: object) -> tuple[jobs.JobRecord, ...]:
        return (COMPLETED, msgspec.structs.replace(COMPLETED, job_id=3))

    asked = []

    async def remembered(slurm_conf: str, job_id: int, **which: int) -> jobs.JobRecord | None:
        asked.append(job_id)
        raise errors.SlurmUnavailable("slurmctld does not answer")

    monkeypatch.setattr(accounting, "ended", ended)
    monkeypatch.setattr(accounting, "remembered", remembered)
    chosen = {
        f"{job_id}-0.json": recordqueue.Head(job_id=job_id, restart=0, uid=7, launched=99.0, closed=100.0)
        for job_id in (1, 2, 3, 4)
    }
    found = await endings.ended("slurm.conf", chosen, 140.0)
    assert list(found) == ["1-0.json", "3-0.json"]
    assert asked == [2]  # not asked again after a failure


async def test_slow_slurmctld_is_asked_until_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hundreds of attempts without accounting once took longer than systemd's watchdog."""

    async def ended(slurm_conf: str, job_ids: object) -> tuple[jobs.JobRecord, ...]:
        raise errors.SlurmError("there is no accounting")

    async def remembered(slurm_conf: str, job_id: int, **which: int) -> jobs.JobRecord | None:
        return msgspec.structs.replace(COMPLETED, job_id=job_id)

    monkeypatch.setattr(accounting, "ended", ended)
    monkeypatch.setattr(accounting, "remembered", remembered)
    monkeypatch.setattr(endings, "ASK_SECONDS", 0.0)
    chosen = {
        f"{job_id}-0.json": recordqueue.Head(job_id=job_id, restart=0, uid=7, launched=99.0, closed=100.0)
        for job_id in (1, 2, 3)
    }
    assert list(await endings.ended("slurm.conf", chosen, 140.0)) == ["1-0.json"]
