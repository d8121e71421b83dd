"""Pending jobs, as Slurm's commands print them."""

from __future__ import annotations

import pytest

from penstock import errors
from penstock.slurm import reader
from tests.unit.slurmtexts import ROW, Programs, programs

__all__ = ["programs"]
SLURM = reader.SlurmReader("")
WAITING = ROW | {
    "JobID": "7",
    "State": "PENDING",
    "NodeList": "",
    "EligibleTime": "1794864115",
    "admin_comment": "penstock 17 avoids=n1,n2 until=1794864115",
}


async def test_pending_job(programs: Programs) -> None:
    """penstockd's excluded nodes are distinguished from the owner's; an array's id brings all its tasks."""
    programs.queue, programs.excluded = [ROW | {"JobID": "8"}, WAITING], "8|n1\n7|n[1-2],n4\n9|\n"
    found = await SLURM.waiting(7)
    assert found is not None
    assert (found.job_id, found.admin_comment) == (7, WAITING["admin_comment"])
    assert (found.excluded, found.avoids) == (("n1", "n2", "n4"), ("n1", "n2"))
    assert found.own_excluded == {"n4"}
    assert (found.until, found.begins, found.started) == (1794864115, 1794864115, 0)
    assert (found.is_fixed, found.features) == (False, False)
    programs.excluded = "7|\n"
    found = await SLURM.waiting(7)
    assert found is not None
    assert found.excluded == ()


@pytest.mark.parametrize(
    "changes",
    [{"State": "RUNNING"}, {"State": "COMPLETING"}, {"admin_comment": ""}, {"admin_comment": "(null)"}],
)
async def test_job_that_is_not_pending_or_not_ours(changes: dict[str, str], programs: Programs) -> None:
    programs.queue = [WAITING | changes]
    assert await SLURM.waiting(7) is None


async def test_unknown_job_is_not_pending(programs: Programs) -> None:
    assert await SLURM.waiting(7) is None


@pytest.mark.parametrize("changes", [{"ReqNodes": "n1"}, {"Reservation": "maintenance"}])
async def test_a_job_for_named_nodes_or_in_a_reservation(changes: dict[str, str], programs: Programs) -> None:
    programs.queue = [WAITING | changes]
    found = await SLURM.waiting(7)
    assert found is not None
    assert found.is_fixed


async def test_queued_jobs(programs: Programs) -> None:
    programs.queue = [WAITING | {"PriorityLong": "3403"}, ROW | {"JobID": "8", "PriorityLong": "12"}]
    found = await SLURM.queued((7, 8))
    assert [(row.job_id, row.is_pending, row.priority) for row in found] == [(7, True, 3403), (8, False, 12)]
    programs.queue = [WAITING | {"JobID": "x"}]
    with pytest.raises(errors.SlurmError, match="do not understand"):
        await SLURM.queued((7,))


async def test_put_off_jobs(programs: Programs) -> None:
    marks = ("penstock 5", "penstock 5 avoids=n1", "penstock 5 until=9", "")
    programs.queue = [
        WAITING | {"JobID": str(job_id), "admin_comment": mark} for job_id, mark in enumerate(marks, 1)
    ]
    assert await SLURM.put_off() == (2, 3)
