"""What Slurm's commands say of jobs in the queue."""

from __future__ import annotations

import pytest

from penstock import errors
from penstock.model import jobs
from penstock.slurm import waiting

ROW = ("PD", "", "(null)", "1794864115", "(null)", "penstock 17 avoids=n1,n2 until=1794864115")


def test_a_job_that_waits() -> None:
    """With the nodes that penstockd keeps it from told apart from its owner's."""
    found = waiting.waiting_job(ROW, "n[1-2],n4", 7)
    assert found == jobs.WaitingJob(
        job_id=7,
        admin_comment=ROW[-1],
        excluded=("n1", "n2", "n4"),
        avoids=("n1", "n2"),
        until=1794864115,
        begins=1794864115,
    )
    assert found.own_excluded == {"n4"}


@pytest.mark.parametrize(("at", "word"), [(0, "R"), (0, "CG"), (5, ""), (5, "(null)")])
def test_a_job_that_does_not_wait_or_is_not_ours(at: int, word: str) -> None:
    row = [*ROW]
    row[at] = word
    assert waiting.waiting_job(row, "", 7) is None


@pytest.mark.parametrize(("at", "word"), [(1, "n1"), (2, "maintenance")])
def test_a_job_for_named_nodes_or_in_a_reservation(at: int, word: str) -> None:
    row = [*ROW]
    row[at] = word
    found = waiting.waiting_job(row, "", 7)
    assert found is not None
    assert found.is_fixed


def test_an_arrays_number_brings_all_its_tasks() -> None:
    assert waiting.excluded("8|n1\n7|n4\n9|\n", 7) == "n4"
    assert waiting.excluded("7|\n", 7) == ""


def test_the_queue() -> None:
    found = waiting.queued("7|PD|3403|BeginTime|\n8|R|12|None|\n")
    assert [(row.job_id, row.is_pending, row.priority) for row in found] == [(7, True, 3403), (8, False, 12)]
    with pytest.raises(errors.SlurmError, match="do not understand"):
        waiting.queued("x|PD|")


def test_jobs_that_were_put_off() -> None:
    rows = [("1", "penstock 5"), ("2", "penstock 5 avoids=n1"), ("3", "penstock 5 until=9"), ("4", "")]
    assert waiting.put_off(rows) == (2, 3)
