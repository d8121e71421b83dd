"""Tables for people show words of others as they are."""

from __future__ import annotations

import datetime
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich import console

from penstock.cli import jobs, output
from penstock.views import jobs as view

HOSTILE = "[/x] [red]a [link=http://x]b"
WORDS = st.text(st.characters(categories=("L", "N", "P", "S"), max_codepoint=0x2FF), min_size=1, max_size=30)


def job(number: str = "17", *, state: str = "PENDING", **more: object) -> view.ShownJob:
    """One without pods; whatever is given is otherwise."""
    array, is_task, _ = number.partition("_")
    fields = dict.fromkeys(field for field in view.ShownJob.__struct_fields__) | {
        "job": number,
        "job_id": "17",
        "array": array if is_task else None,
        "user": "alice",
        "name": "x",
        "partition": "gpu",
        "state": state,
        "restarts": 0,
        "elapsed_seconds": 0,
        "nodes": () if state == "PENDING" else ("n1",),
        "pods": (),
        "timeline": (),
        "tasks": 1,
        "comment": "",
        "stdout": "",
        "stderr": "",
    }
    return view.ShownJob(**fields | more)  # type: ignore[arg-type]  # by name


def queue(*found: view.Job) -> view.Queue:
    return view.Queue(jobs=found)


@pytest.mark.parametrize("name", [HOSTILE, "[bold]", "\\[", ":boom:"])
def test_nobodys_job_name_is_markup(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It neither ends `penstock jobs` for everybody nor is any of it hidden."""
    monkeypatch.setenv("COLUMNS", "160")
    jobs.print_jobs(queue(job(name=name)))
    assert f" {name} " in capsys.readouterr().out


def test_what_a_job_waits_for_is_shown_in_place_of_when_it_is_tried_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Slurm only knows the time of the next try; its own reason is shown as squeue has it."""
    reason = view.Reason(source="kubernetes", code="BeginTime", text="waits for gpu on n1")
    jobs.print_jobs(queue(job(reason=reason)))
    shown = capsys.readouterr().out
    assert "waits for gpu on n1" in shown
    assert "BeginTime" not in shown
    jobs.print_jobs(queue(job(reason=view.Reason(source="slurm", code="Priority", text="behind others"))))
    assert "(Priority)" in capsys.readouterr().out


def test_an_array_is_one_line_with_its_tasks_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless a line for each is asked for."""
    monkeypatch.delenv("COLUMNS", raising=False)
    found = [job(f"20_{task}", state="RUNNING" if task < 2 else "PENDING") for task in range(100)]
    jobs.print_jobs(queue(*found, job("21")))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "20_[100 tasks]" in lines[1]
    assert "2 RUNNING, 98 PENDING" in lines[1]
    jobs.print_jobs(queue(*found), unfolded=True)
    assert len(capsys.readouterr().out.splitlines()) == 101


def test_an_array_says_how_many_of_its_tasks_are_in_each_state(capsys: pytest.CaptureFixture[str]) -> None:
    """And how to see one of them, in a command that works as it stands."""
    waiting = job("20_[5-99%2]", tasks=95)
    found = (job("20_3", state="COMPLETED"), job("20_4", state="RUNNING"), waiting)
    jobs.print_shown(view.Shown(jobs=found))
    printed = capsys.readouterr().out
    assert "1 COMPLETED, 1 RUNNING, 95 PENDING" in printed
    assert "`penstock show 20_3` shows all of one of them." in printed


@pytest.mark.parametrize(("problem", "words"), [("", "not yours to see"), ("it is away", "not known")])
def test_pods_that_are_not_shown_are_not_taken_for_none(
    problem: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of others' jobs, and of all when penstockd is away."""
    hidden = job(state="RUNNING", pods=None, timeline=None)
    jobs.print_jobs(view.Queue(jobs=(hidden,), problem=problem))
    assert words in capsys.readouterr().out
    jobs.print_shown(view.Shown(jobs=(hidden,), problem=problem))
    printed = capsys.readouterr().out
    assert words in printed
    assert "No pods" not in printed


def test_a_job_that_waits_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    """Also one that nobody has tried to start yet."""
    reason = view.Reason(source="slurm", code="Priority", text="waits behind jobs of higher priority")
    jobs.print_shown(view.Shown(jobs=(job(reason=reason),)))
    printed = capsys.readouterr().out
    assert "waits behind jobs of higher priority (Priority)" in printed
    assert "remembers nothing" not in printed


def test_what_is_piped_is_not_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program reads one job in one line, however long its name is."""
    monkeypatch.delenv("COLUMNS", raising=False)
    jobs.print_jobs(queue(job(name="n" * 300)))
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
