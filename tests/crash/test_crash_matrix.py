"""Kills a process at every labelled step of the protocol: the job must end correctly.

For each row the step is armed, a job is submitted, the victim is killed there by SIGKILL, and the lab is
repaired. Then it checks the record in Slurm, the output (complete, without repetition), the number of runs,
the invariants, and that no node is left drained.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import pytest

from penstock_lab import testing
from tests.crash import conftest, killing, matrix, shapes, tasks
from tests.e2e import semantics

Lab = testing.RunningLab
SECONDS = 300  # slurmctld polls a slurmd that was down for the end of a job again after two minutes
OVER = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}
SLURMS_WORD = re.compile(r"^slurmstepd.*CANCELLED.*\n", re.MULTILINE)
"""What Slurm itself writes into a cancelled job's output."""

WHOLE = os.environ.get(conftest.WHOLE) == "all"
rows = pytest.mark.parametrize(
    "row",
    [row for row in matrix.ROWS if row.shape in shapes.SHAPES and (row.quick or WHOLE)],
    ids=lambda row: row.name,
)
Note = Callable[[str, object], None]


@pytest.fixture
def trap(crash_lab: Lab) -> Iterator[killing.Trap]:
    """Arms steps; afterwards waiting processes are released and the lab is repaired."""
    made = killing.Trap.of(crash_lab)
    made.repair()
    yield made
    made.clear()


def note(row: matrix.Row, record_property: Note) -> None:
    for name, value in (("step", row.point), ("killed", row.victim), ("job", row.shape)):
        record_property(name, value)


@rows
def test_a_crash_does_not_change_the_end(
    row: matrix.Row, crash_lab: Lab, trap: killing.Trap, outside: Path, record_property: Note
) -> None:
    """Correct record, complete output, no second run, nothing left."""
    note(row, record_property)
    shape = shapes.SHAPES[row.shape]
    job = crash(row, shape, trap, crash_lab, outside)
    records = final_records(crash_lab, [task.job_id for task in job.tasks])
    record_property("ended", summary(records))
    ends = [how_it_ended(crash_lab, task, shape, records[task.job_id]) for task in job.tasks]
    assert row.allows(ends), f"{ends}: {records}, output {[task.text for task in job.tasks]}"
    for task, ending in zip(job.tasks, ends, strict=True):
        restarts = int(crash_lab.job(task.job_id)["Restarts"])
        assert task.runs <= restarts + 1, "an attempt ran twice"
        again = shape.restarted and ending == matrix.AS_IT_SHOULD
        assert restarts > 0 or not again, "Slurm has not run it again"
    crash_lab.check()
    shape.proof(crash_lab, job)
    semantics.wait_until(lambda: not drained(crash_lab), "no node is drained", timeout=SECONDS)


@pytest.mark.skipif(not WHOLE, reason="part of the whole matrix: make crash")
def test_a_submission_that_slurmctld_did_not_live_to_answer(
    crash_lab: Lab, trap: killing.Trap, record_property: Note
) -> None:
    """sbatch fails, and there is no job; the next submission works."""
    row = next(row for row in matrix.ROWS if row.inside_slurmctld)
    note(row, record_property)
    record_property("ended", "no job")
    trap.arm(row)
    with futures.ThreadPoolExecutor() as pool:
        argv = ("sbatch", "--job-name=unanswered", "--wrap", "true")
        submitting = pool.submit(crash_lab.run_as_user, argv, check=False, timeout=200)
        trap.wait(row)
        trap.kill(row, "")
        trap.repair()
        assert submitting.result().returncode != 0
    assert crash_lab.run(("squeue", "--noheader", "--states=all", "--name=unanswered")).stdout == ""
    again = crash_lab.sbatch("#!/bin/sh\nexit 3\n", "--output=/dev/null")
    assert semantics.record(crash_lab, again) == semantics.Record("FAILED", "3:0")
    crash_lab.check()


def crash(row: matrix.Row, shape: shapes.Shape, trap: killing.Trap, lab: Lab, outside: Path) -> tasks.Job:
    """The job, with the victim dead and the lab repaired."""
    shape.before(lab)
    trap.arm(row)
    job = shape.submit(lab, semantics.folder(lab, "crash"), outside)
    shape.act(lab, job)
    trap.wait(row)
    shape.there(lab, job)
    trap.kill(row, job.job_id)
    futures.wait(job.meanwhile)
    if row.victim not in matrix.HOOKS:
        trap.repair()
    shape.after(lab, job)
    return job


def final_records(lab: Lab, job_ids: list[str]) -> dict[str, semantics.Record]:
    """The tasks' final ends: for a while the accounting shows requeued attempts as ended."""

    def states() -> dict[str, str]:
        return {job_id: lab.job(job_id)["JobState"] for job_id in job_ids}

    semantics.wait_until(lambda: set(states().values()) <= OVER, "Slurm has ended the job", timeout=SECONDS)
    wanted = states()

    def told() -> bool:
        found = semantics.ended(lab, job_ids)
        return {job_id: record.state for job_id, record in found.items()} == wanted

    semantics.wait_until(told, f"the accounting has {wanted}", timeout=SECONDS)
    return semantics.records(lab, job_ids)


def how_it_ended(lab: Lab, task: tasks.Task, shape: shapes.Shape, record: semantics.Record) -> str:
    """An outcome of the matrix, or the problem."""
    comment = semantics.field(lab, task.job_id, "Comment")
    if (record.state, record.code) == ("FAILED", "0:9"):
        whole = shape.texts[0].startswith(task.text)
        return matrix.KILLED if whole and task.runs <= 1 else "killed, with more output than there is"
    if (record.state, record.code if shape.record[1] else "") == shape.record:
        text = SLURMS_WORD.sub("", task.text)
        as_written = text in shape.texts and (task.runs >= 1 or shape.unseen) and shape.reason in comment
        return matrix.AS_IT_SHOULD if as_written else f"right record, wrong output or reason ({comment!r})"
    if record.state == "FAILED" and "deleted from outside" in comment:
        return matrix.PODS_LOST
    return "wrong record"


def summary(records: dict[str, semantics.Record]) -> str:
    """The accounting records, without repetition."""
    return ", ".join(sorted({f"{record.state} {record.code}" for record in records.values()}))


def drained(lab: Lab) -> str:
    return lab.run(("sinfo", "--noheader", "--states=drain,down", "--format=%n %E")).stdout.strip()
