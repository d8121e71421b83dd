"""Which record of the accounting is which attempt's."""

from __future__ import annotations

import msgspec
import pytest

from penstock.model import jobs
from penstock.slurm import accounting
from tests.unit.slurmtexts import RECORD, Programs, programs

__all__ = ["programs"]
REMEMBERED = """JobId=23 ArrayJobId=20 ArrayTaskId=3 JobName=x JobState=COMPLETED UserId=root(0)
   UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A
   Priority=1 Nice=0 Account=research QOS=normal
   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)
   Requeue=1 Restarts=1 BatchFlag=1 Reboot=0 ExitCode=7:0
   Partition=gpu AllocNode:Sid=login:1
   Comment=x
   JobState=COMPLETED
"""


def row(**changes: object) -> jobs.JobRecord:
    base = accounting.record(RECORD)
    assert base is not None
    values = {name: getattr(base, name) for name in base.__struct_fields__} | changes
    return jobs.JobRecord(**values)


def test_row_is_read() -> None:
    """Every field at its place."""
    assert row() == jobs.JobRecord(
        job_id=23,
        shown_id="20_3",
        uid=1001,
        state="COMPLETED",
        end="0:0",
        submitted=990.0,
        started=1000.0,
        ended=1050.0,
        elapsed=50,
        account="research",
        partition="gpu",
        qos="normal",
        user="alice",
        name="a b",
        nodes=("n1",),
    )
    assert (row(end="7:15").exit_code, row(end="7:15").signal) == (7, 15)
    assert (row(end="?").exit_code, row(end="?").signal) == (None, None)


def test_what_the_collector_keeps_is_as_it_always_was() -> None:
    """A file of an earlier release is read after an upgrade, and the other way round."""
    kept = b'{"job_id":23,"shown_id":"20_3","uid":1001,"state":"FAILED","exit_code":"7:0","submitted":990.0,'
    kept += b'"started":1000.0,"ended":null,"account":"research","partition":"gpu","qos":"","name":"a b"}'
    found = msgspec.json.decode(kept, type=jobs.JobRecord)
    assert (found.exit_code, found.signal, found.started, found.ended) == (7, 0, 1000.0, None)
    again = msgspec.json.decode(msgspec.json.encode(found))
    assert again.items() >= msgspec.json.decode(kept).items()


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("CANCELLED by 1001", "CANCELLED"),
        ("PENDING", "REQUEUED"),
        ("REQUEUED", "REQUEUED"),
        ("TIMEOUT", "TIMEOUT"),
    ],
)
async def test_states_in_one_word(state: str, word: str, programs: Programs) -> None:
    """Who cancelled is left out; an ended attempt that is pending was sent back."""
    programs.records = [RECORD | {"State": state}, RECORD | {"State": state, "End": "Unknown"}]
    (found,) = await accounting.ended("", [23])
    assert found.state == word


@pytest.mark.parametrize("changes", [{"JobIDRaw": "x"}, {"UID": "alice"}])
def test_rows_that_are_none(changes: dict[str, str]) -> None:
    """Left out rather than guessed."""
    assert accounting.record(RECORD | changes) is None


async def test_no_text_in_a_row_can_look_like_another(programs: Programs) -> None:
    """Line breaks and separators in a name, an account or a comment are a name, an account and a comment."""
    forged = "x\n" + "\x1f".join(["24", *RECORD.values()]) + "\n"
    programs.records = [RECORD | {"Account": forged, "JobName": f"{forged}|", "Comment": f"|{forged}"}]
    (found,) = await accounting.ended("", [23])
    assert (found.job_id, found.partition, found.account) == (23, "gpu", forged.strip())
    assert await accounting.comments("", {23}) == {23: f"|{forged}".strip()}


def test_attempt_is_told_by_when_it_started() -> None:
    """The latest that had started when it was launched; whole seconds give a little room."""
    rows = [row(started=float(at), ended=at + 50.0) for at in (1000, 1100, 1200)]
    for launched, started in ((1000.4, 1000), (1149.0, 1100), (1100.0, 1100), (1198.5, 1200), (1250.0, 1200)):
        found = accounting.attempt_among(rows, job_id=23, uid=1001, launched=launched)
        assert found is not None
        assert found.started == started


@pytest.mark.parametrize("changes", [{"uid": 1002}, {"job_id": 24}, {"started": None}, {"started": 2000.0}])
def test_records_of_others_are_not_believed(changes: dict[str, object]) -> None:
    """Another user's job of that number, another job, one that began later."""
    assert accounting.attempt_among([row(**changes)], job_id=23, uid=1001, launched=1010.0) is None


def test_earlier_attempt_is_not_taken_for_one_whose_record_is_not_there_yet() -> None:
    """It had ended before this one was launched."""
    assert accounting.attempt_among([row()], job_id=23, uid=1001, launched=1500.0) is None


async def test_slurmctlds_memory(programs: Programs) -> None:
    """Only lines that Slurm itself begins are believed, and only of this attempt."""
    programs.jobs = REMEMBERED
    found = await accounting.remembered("", 23, uid=1001, restart=1)
    assert found is not None
    assert (found.shown_id, found.state, found.end, found.partition) == ("20_3", "FAILED", "7:0", "gpu")
    earlier = await accounting.remembered("", 23, uid=1001, restart=0)
    assert earlier is not None
    assert (earlier.state, earlier.end) == ("REQUEUED", "0:0")
    assert await accounting.remembered("", 23, uid=1001, restart=2) is None
    assert await accounting.remembered("", 23, uid=0, restart=1) is None
    programs.jobs = REMEMBERED.replace("JobState=FAILED", "JobState=RUNNING")
    assert await accounting.remembered("", 23, uid=1001, restart=1) is None
    programs.jobs = ""
    assert await accounting.remembered("", 23, uid=1001, restart=1) is None


async def test_another_task_of_the_array_is_not_taken_for_the_last(programs: Programs) -> None:
    """The last task has the array's number; once slurmctld has forgotten it, that number shows the others."""
    last = REMEMBERED.replace("JobId=23", "JobId=20").replace("TaskId=3", "TaskId=4").replace("7:0", "0:0")
    programs.jobs = f"{last}\n{REMEMBERED}\n"
    found = await accounting.remembered("", 20, uid=1001, restart=1)
    assert found is not None
    assert (found.shown_id, found.end) == ("20_4", "0:0")
    programs.jobs = REMEMBERED
    assert await accounting.remembered("", 20, uid=1001, restart=1) is None
