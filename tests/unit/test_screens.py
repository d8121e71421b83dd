"""Tables for people show words of others as they are."""

from __future__ import annotations

import datetime
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich import console

from penstock.cli import jobs, output
from penstock.model import views
from penstock.model.reasons import Refusal, RefusalKind
from penstock.slurm import showing
from penstock.views import jobs as documents

HOSTILE = "[/x] [red]a [link=http://x]b"
WORDS = st.text(st.characters(categories=("L", "N", "P", "S"), max_codepoint=0x2FF), min_size=1, max_size=30)


def queued(
    shown_id: str = "17", *, state: str = "PENDING", reason: str = "", name: str = "x"
) -> showing.QueuedJob:
    nodes = () if state == "PENDING" else ("n1",)
    return showing.QueuedJob(
        job_id=17,
        shown_id=shown_id,
        user="alice",
        name=name,
        partition="gpu",
        state=state,
        elapsed=0,
        nodes=nodes,
        reason=reason,
    )


@pytest.mark.parametrize("name", [HOSTILE, "[bold]", "\\[", ":boom:"])
def test_nobodys_job_name_is_markup(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It neither ends `penstock jobs` for everybody nor is any of it hidden."""
    monkeypatch.setenv("COLUMNS", "160")
    jobs.print_jobs([documents.job_of(queued(name=name), None, hidden=False)])
    assert f" {name} " in capsys.readouterr().out


def test_what_a_job_waits_for_is_shown_in_place_of_when_it_is_tried_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Slurm only knows the time of the next try."""
    view = views.JobView(17, refusals=(Refusal(kind=RefusalKind.NODE_CORDONED, node="n1", since=5.0),))
    found = documents.job_of(queued(reason="BeginTime"), view, hidden=False)
    jobs.print_jobs([found])
    shown = capsys.readouterr().out
    assert "waits for node n1: cordoned" in shown
    assert "BeginTime" not in shown
    assert found.reason is not None
    assert (found.reason.source, found.reason.code) == ("kubernetes", "BeginTime")
    assert [(one.kind, one.node, one.since.timestamp()) for one in found.reason.refusals] == [
        ("node-cordoned", "n1", 5.0)
    ]
    running = queued(state="RUNNING", reason="None")
    assert documents.job_of(running, view, hidden=False).reason is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("Resources", "waits until enough"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "a node that it asked for is down"),
        ("QOSMaxJobsPerUserLimit", "a limit of its quality of service"),
        ("AssocGrpGRESMinutes", "a limit of its user or account"),
        ("SomethingNew", "waits"),
    ],
)
def test_slurms_reason_is_typed_and_in_words(code: str, words: str) -> None:
    """A word that Slurm has invented since is still there, as the code."""
    reason = documents.job_of(queued(reason=code), None, hidden=False).reason
    assert reason is not None
    assert (reason.source, reason.code, words in reason.text) == ("slurm", code, True)


def test_an_array_is_one_line_with_its_tasks_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless a line for each is asked for."""
    monkeypatch.delenv("COLUMNS", raising=False)
    tasks = [queued(f"20_{task}", state="RUNNING" if task < 2 else "PENDING") for task in range(100)]
    found = [documents.job_of(task, None, hidden=False) for task in tasks]
    jobs.print_jobs([*found, documents.job_of(queued("21"), None, hidden=False)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "20_[100 tasks]" in lines[1]
    assert "2 RUNNING, 98 PENDING" in lines[1]
    jobs.print_jobs(found, unfolded=True)
    assert len(capsys.readouterr().out.splitlines()) == 101


@pytest.mark.parametrize(
    ("tasks", "count"),
    [("3", 1), ("[5-99%2]", 95), ("[1,3,5-7]", 5), ("[0-20:4]", 6), ("[1-9,...]", 1), ("", 1)],
)
def test_tasks_that_wait_are_counted_one_by_one(tasks: str, count: int) -> None:
    """Slurm lists them as one job; a list that it has cut short is not guessed at."""
    shown_id = f"20_{tasks}" if tasks else "20"
    record = showing.JobRecord(job_id=20, shown_id=shown_id, user="alice", state="PENDING")
    assert documents.shown_of(record, None, hidden=False).tasks == count


def test_an_array_says_how_many_of_its_tasks_are_in_each_state(capsys: pytest.CaptureFixture[str]) -> None:
    """And how to see one of them, in a command that works as it stands."""
    states = {"20_3": "COMPLETED", "20_4": "RUNNING", "20_[5-99%2]": "PENDING"}
    records = [showing.JobRecord(job_id=20, shown_id=task, state=state) for task, state in states.items()]
    jobs.print_tasks([documents.shown_of(record, None, hidden=False) for record in records])
    printed = capsys.readouterr().out
    assert "1 COMPLETED, 1 RUNNING, 95 PENDING" in printed
    assert "`penstock show 20_3` shows all of one of them." in printed


def test_pods_of_others_are_not_taken_for_none(capsys: pytest.CaptureFixture[str]) -> None:
    """In the table and in JSON, where they are null."""
    found = documents.job_of(queued(state="RUNNING"), None, hidden=True)
    jobs.print_jobs([found])
    assert jobs.NOT_YOURS in capsys.readouterr().out
    assert found.pods is None
    record = showing.JobRecord(job_id=17, shown_id="17", user="alice", state="RUNNING")
    shown = documents.shown_of(record, None, hidden=True)
    jobs.print_job(shown)
    printed = capsys.readouterr().out
    assert jobs.NOT_YOURS in printed
    assert "No pods" not in printed
    assert shown.timeline is None


def test_a_job_that_waits_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    """Also one that nobody has tried to start yet."""
    record = showing.JobRecord(job_id=17, shown_id="17", user="alice", state="PENDING", reason="Priority")
    jobs.print_job(documents.shown_of(record, None, hidden=False))
    printed = capsys.readouterr().out
    assert "waits behind jobs of higher priority (Priority)" in printed
    assert "remembers nothing" not in printed


def test_why_a_job_waits_is_not_shown_twice() -> None:
    """As the reason, and not as the owner's comment, too."""
    comment = "waits for gpu on n1 [penstock] mine"
    record = showing.JobRecord(job_id=17, shown_id="17", state="PENDING", comment=comment)
    assert documents.shown_of(record, None, hidden=False).comment == "mine"


def test_what_is_piped_is_not_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program reads one job in one line, however long its name is."""
    monkeypatch.delenv("COLUMNS", raising=False)
    jobs.print_jobs([documents.job_of(queued(name="n" * 300), None, hidden=False)])
    assert "n" * 300 in capsys.readouterr().out


def test_times_for_people_have_a_date_and_a_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The zone of whoever reads."""
    monkeypatch.setenv("TZ", "KST-9")
    time.tzset()
    try:
        at = datetime.datetime(2026, 1, 31, 15, 0, 0, 83000, datetime.UTC)
        assert output.moment(at) == "2026-02-01 00:00:00 KST"
        assert output.moment(at, exact=True) == "2026-02-01 00:00:00.083 KST"
        assert output.moment(None) == ""
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (output.duration(93784), output.duration(5)) == ("1-02:03:04", "00:00:05")


@given(words=WORDS)
def test_what_does_not_fit_is_folded_and_not_cut(words: str) -> None:
    """Every character is there, in a table of any width."""
    table = output.columns("why", title="")
    table.add_row(words)
    out = console.Console(markup=False, highlight=False, width=12)
    with out.capture() as taken:
        out.print(table)
    lines = taken.get().splitlines()[1:]
    assert "".join(line.strip() for line in lines) == words


@pytest.mark.parametrize("state", ["STAGE_OUT", "SIGNALING", "STOPPED", "SPECIAL_EXIT", "COMPLETING"])
def test_a_job_has_ended_only_in_states_that_are_an_end(state: str) -> None:
    """One table says which those are: a job that is being signalled has no exit code yet."""
    record = showing.JobRecord(job_id=17, shown_id="17", user="alice", state=state, exit_code=0, signal=0)
    assert documents.shown_of(record, None, hidden=False).exit_code is None
    over = msgspec.structs.replace(record, state="OUT_OF_MEMORY")
    assert documents.shown_of(over, None, hidden=False).exit_code == 0
