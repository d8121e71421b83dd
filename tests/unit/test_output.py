"""Tables show text of others unchanged."""

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
    """A job without pods; fields can be overridden."""
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
def test_job_name_is_not_markup(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It neither breaks `penstock jobs` nor is any part of it hidden."""
    monkeypatch.setenv("COLUMNS", "160")
    jobs.print_jobs(queue(job(name=name)))
    assert f" {name} " in capsys.readouterr().out


def test_refusal_is_shown_instead_of_begin_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Slurm's own reason is shown as in squeue."""
    reason = view.Reason(source="kubernetes", code="BeginTime", text="waits for gpu on n1")
    jobs.print_jobs(queue(job(reason=reason)))
    shown = capsys.readouterr().out
    assert "waits for gpu on n1" in shown
    assert "BeginTime" not in shown
    jobs.print_jobs(queue(job(reason=view.Reason(source="slurm", code="Priority", text="behind others"))))
    assert "(Priority)" in capsys.readouterr().out


def test_array_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With --array, one line for each task."""
    monkeypatch.delenv("COLUMNS", raising=False)
    found = [job(f"20_{task}", state="RUNNING" if task < 2 else "PENDING") for task in range(100)]
    jobs.print_jobs(queue(*found, job("21")))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "20_[100 tasks]" in lines[1]
    assert "2 RUNNING, 98 PENDING" in lines[1]
    jobs.print_jobs(queue(*found), unfolded=True)
    assert len(capsys.readouterr().out.splitlines()) == 101


def test_show_counts_tasks_of_array_by_state(capsys: pytest.CaptureFixture[str]) -> None:
    """And names a command that shows one of them."""
    waiting = job("20_[5-99%2]", tasks=95)
    found = (job("20_3", state="COMPLETED"), job("20_4", state="RUNNING"), waiting)
    jobs.print_shown(view.Shown(jobs=found))
    printed = capsys.readouterr().out
    assert "1 COMPLETED, 1 RUNNING, 95 PENDING" in printed
    assert "`penstock show 20_3` shows one task in full." in printed


@pytest.mark.parametrize(("problem", "words"), [("", "hidden (another user's)"), ("it is away", "unknown")])
def test_hidden_pods_are_not_shown_as_none(
    problem: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of other users' jobs, and of all jobs while penstockd does not answer."""
    hidden = job(state="RUNNING", pods=None, timeline=None)
    jobs.print_jobs(view.Queue(jobs=(hidden,), problem=problem))
    assert words in capsys.readouterr().out
    jobs.print_shown(view.Shown(jobs=(hidden,), problem=problem))
    printed = capsys.readouterr().out
    assert words in printed
    assert "No pods" not in printed


def test_pending_job_shows_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """Also before the first try to start it."""
    reason = view.Reason(source="slurm", code="Priority", text="waits behind jobs of higher priority")
    jobs.print_shown(view.Shown(jobs=(job(reason=reason),)))
    printed = capsys.readouterr().out
    assert "waits behind jobs of higher priority (Priority)" in printed
    assert "no timeline" not in printed


def test_output_to_pipe_is_not_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job per line, however long its name is."""
    monkeypatch.delenv("COLUMNS", raising=False)
    jobs.print_jobs(queue(job(name="n" * 300)))
    assert "n" * 300 in capsys.readouterr().out


def test_times_have_date_and_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The local zone."""
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
def test_long_cells_are_folded(words: str) -> None:
    """Every character is shown, at any width."""
    table = output.columns("why", title="")
    table.add_row(words)
    out = console.Console(markup=False, highlight=False, width=12)
    with out.capture() as taken:
        out.print(table)
    lines = taken.get().splitlines()[1:]
    assert "".join(line.strip() for line in lines) == words
