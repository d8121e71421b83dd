"""Which accounting record belongs to which attempt."""

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


def test_format_of_collected_records_is_stable() -> None:
    """Files are readable after an upgrade and after a downgrade."""
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
async def test_states(state: str, word: str, programs: Programs) -> None:
    """Who cancelled is dropped; an ended attempt with state PENDING was requeued."""
    programs.records = [RECORD | {"State": state}, RECORD | {"State": state, "End": "Unknown"}]
    (found,) = await accounting.ended("", [23])
    assert found.state == word


@pytest.mark.parametrize("changes", [{"JobIDRaw": "x"}, {"UID": "alice"}])
def test_invalid_rows_are_skipped(changes: dict[str, str]) -> None:
    assert accounting.record(RECORD | changes) is None


async def test_users_text_cannot_forge_fields(programs: Programs) -> None:
    """Line breaks and separators in a name, an account or a comment stay part of it."""
    forged = "x\n" + "\x1f".join(["24", *RECORD.values()]) + "\n"
    programs.records = [RECORD | {"Account": forged, "JobName": f"{forged}|", "Comment": f"|{forged}"}]
    (found,) = await accounting.ended("", [23])
    assert (found.job_id, found.partition, found.account) == (23, "gpu", forged.strip())
    assert await accounting.comments("", {23}) == {23: f"|{forged}".strip()}


def test_attempt_is_identified_by_its_start() -> None:
    """The latest that had started at the launch, with a tolerance because times are whole seconds."""
    rows = [row(started=float(at), ended=at + 50.0) for at in (1000, 1100, 1200)]
    for launched, started in ((1000.4, 1000), (1149.0, 1100), (1100.0, 1100), (1198.5, 1200), (1250.0, 1200)):
        found = accounting.attempt_among(rows, job_id=23, uid=1001, launched=launched)
        assert found is not None
        assert found.started == started


@pytest.mark.parametrize("changes", [{"uid": 1002}, {"job_id": 24}, {"started": None}, {"started": 2000.0}])
def test_foreign_records_are_ignored(changes: dict[str, object]) -> None:
    """Another user's job of that id, another job, a later attempt."""
    assert accounting.attempt_among([row(**changes)], job_id=23, uid=1001, launched=1010.0) is None


def test_earlier_attempt_does_not_match() -> None:
    """It had ended before this one was launched."""
    assert accounting.attempt_among([row()], job_id=23, uid=1001, launched=1500.0) is None


async def test_record_from_slurmctld(programs: Programs) -> None:
    """Only lines that Slurm itself begins count, and only of this attempt."""
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


async def test_array_id_matches_only_the_last_task(programs: Programs) -> None:
    """The last task has the array's id; once slurmctld has forgotten it, that id shows other tasks."""
    last = REMEMBERED.replace("JobId=23", "JobId=20").replace("TaskId=3", "TaskId=4").replace("7:0", "0:0")
    programs.jobs = f"{last}\n{REMEMBERED}\n"
    found = await accounting.remembered("", 20, uid=1001, restart=1)
    assert found is not None
    assert (found.shown_id, found.end) == ("20_4", "0:0")
    programs.jobs = REMEMBERED
    assert await accounting.remembered("", 20, uid=1001, restart=1) is None
