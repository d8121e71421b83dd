"""Which record of the accounting is which attempt's."""

from __future__ import annotations

import pytest

from penstock.slurm import accounting, commands

ROW = ["23", "20_3", "1001", "COMPLETED", "0:0", "990", "1000", "1050", "research", "gpu", "normal", "a b"]
REMEMBERED = """JobId=23 ArrayJobId=20 ArrayTaskId=3 JobName=x JobState=COMPLETED UserId=root(0)
   UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A
   Priority=1 Nice=0 Account=research QOS=normal
   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)
   Requeue=1 Restarts=1 BatchFlag=1 Reboot=0 ExitCode=7:0
   Partition=gpu AllocNode:Sid=login:1
   Comment=x
   JobState=COMPLETED
"""


def row(**changes: object) -> accounting.EndedAttempt:
    base = accounting._row(ROW)
    assert base is not None
    values = {name: getattr(base, name) for name in base.__struct_fields__} | changes
    return accounting.EndedAttempt(**values)


def test_row_is_read() -> None:
    """Every field at its place."""
    assert row() == accounting.EndedAttempt(
        job_id=23,
        shown_id="20_3",
        uid=1001,
        state="COMPLETED",
        exit_code="0:0",
        submitted=990.0,
        started=1000.0,
        ended=1050.0,
        account="research",
        partition="gpu",
        qos="normal",
        name="a b",
    )


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("CANCELLED by 1001", "CANCELLED"),
        ("PENDING", "REQUEUED"),
        ("REQUEUED", "REQUEUED"),
        ("TIMEOUT", "TIMEOUT"),
    ],
)
def test_states_in_one_word(state: str, word: str) -> None:
    """Who cancelled is left out; an ended attempt that is pending was sent back."""
    found = accounting._row([*ROW[:3], state, *ROW[4:]])
    assert found is not None
    assert found.state == word


@pytest.mark.parametrize("words", [["x", *ROW[1:]], [*ROW[:2], "alice", *ROW[3:]]])
def test_rows_that_are_none(words: list[str]) -> None:
    """Left out rather than guessed."""
    assert accounting._row(words) is None


async def test_no_text_in_a_row_can_look_like_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Line breaks and separators in a name or an account are a name and an account."""
    forged = "x\n" + "\x1f".join(["24", *ROW[1:]]) + "\n"

    async def run(argv: list[str], **_: object) -> str:
        separator = next(word for word in argv if word.startswith("--delimiter=")).partition("=")[2]
        words = [*ROW[:8], forged, *ROW[9:11], f"{forged}|"]
        return "".join(f"{word}{separator}" for word in words) + "\n"

    monkeypatch.setattr(commands, "run", run)
    (found,) = await accounting.ended("", [23])
    assert (found.job_id, found.partition, found.account) == (23, "gpu", forged.strip())


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


def test_slurmctlds_memory() -> None:
    """Only lines that Slurm itself begins are believed, and only of this attempt."""
    found = accounting.remembered_in(REMEMBERED, 23, uid=1001, restart=1)
    assert found is not None
    assert (found.shown_id, found.state, found.exit_code, found.partition) == ("20_3", "FAILED", "7:0", "gpu")
    earlier = accounting.remembered_in(REMEMBERED, 23, uid=1001, restart=0)
    assert earlier is not None
    assert earlier.state == "REQUEUED"
    assert accounting.remembered_in(REMEMBERED, 23, uid=1001, restart=2) is None
    assert accounting.remembered_in(REMEMBERED, 23, uid=0, restart=1) is None
    running = REMEMBERED.replace("JobState=FAILED", "JobState=RUNNING")
    assert accounting.remembered_in(running, 23, uid=1001, restart=1) is None


def test_another_task_of_the_array_is_not_taken_for_the_last() -> None:
    """The last task has the array's number; once slurmctld has forgotten it, that number shows the others."""
    last = REMEMBERED.replace("JobId=23", "JobId=20").replace("TaskId=3", "TaskId=4").replace("7:0", "0:0")
    found = accounting.remembered_in(f"{last}\n{REMEMBERED}\n", 20, uid=1001, restart=1)
    assert found is not None
    assert (found.shown_id, found.exit_code) == ("20_4", "0:0")
    assert accounting.remembered_in(REMEMBERED, 20, uid=1001, restart=1) is None
