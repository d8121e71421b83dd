"""Tables for people show words of others as they are."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich import console

from penstock.cli import jobs, screens
from penstock.model import views
from penstock.slurm import showing

HOSTILE = "[/x] [red]a [link=http://x]b"
WORDS = st.text(st.characters(categories=("L", "N", "P", "S"), max_codepoint=0x2FF), min_size=1, max_size=30)


@pytest.mark.parametrize("name", [HOSTILE, "[bold]", "\\[", ":boom:"])
def test_nobodys_job_name_is_markup(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It neither ends `penstock jobs` for everybody nor is any of it hidden."""
    monkeypatch.setenv("COLUMNS", "160")
    job = showing.QueuedJob(17, "17", "alice", name, "gpu", "PENDING", "0:00", 0, "(Resources)")
    jobs._print_jobs([jobs.JoinedJob(job, (), "")])
    assert f" {name} " in capsys.readouterr().out


def test_what_a_job_waits_for_is_shown_in_place_of_when_it_is_tried_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm only knows the time of the next try."""
    monkeypatch.setenv("COLUMNS", "160")
    job = showing.QueuedJob(17, "17", "alice", "x", "gpu", "PENDING", "0:00", 1, "(BeginTime)")
    view = views.JobView(17, waits_for="waits for gpu on n1")
    joined = jobs._joined(job, view)
    jobs._print_jobs([joined])
    shown = capsys.readouterr().out
    assert "waits for gpu on n1" in shown
    assert "BeginTime" not in shown
    running = msgspec.structs.replace(job, state="RUNNING")
    assert jobs._joined(running, view).waits_for == ""


@given(words=WORDS)
def test_what_does_not_fit_is_folded_and_not_cut(words: str) -> None:
    """Every character is there, in a table of any width."""
    table = screens.columns("why", title="")
    table.add_row(words)
    out = console.Console(markup=False, highlight=False, width=12)
    with out.capture() as taken:
        out.print(table)
    lines = taken.get().splitlines()[1:]
    assert "".join(line.strip() for line in lines) == words
