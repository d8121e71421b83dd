"""`penstock results` and `penstock logs`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock import errors
from penstock.cli import logs, results
from penstock.model import jobs
from penstock.views import logs as view
from penstock.views import sources
from penstock.views.results import NoResults
from tests.results.stage import Stage
from tests.unit import fakes
from tests.unit.viewed import Penstockd, Slurm

Say = Callable[..., None]


def record(state: str = "COMPLETED", **more: Any) -> jobs.Job:
    return fakes.job(17, state=state, **({"shown_id": "17", "user": "alice"} | more))


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Say:
    """Decide what Slurm answers; penstockd knows no job."""

    def decide(*records: jobs.Job) -> None:
        slurm = Slurm(known=[(one,) for one in records])
        monkeypatch.setattr(sources, "SlurmCommands", lambda: slurm)

    monkeypatch.setattr(sources, "Socket", Penstockd)
    monkeypatch.setattr(view, "ASK_SLURM", 0.0)
    monkeypatch.setattr(view, "POLL", 0.01)
    monkeypatch.delenv("PENSTOCK_RESULTS", raising=False)
    monkeypatch.delenv("PENSTOCK_LAB", raising=False)
    return decide


def call(stage: Stage, *arguments: str) -> Result:
    """Run it; our errors come back as the exception, as the program's main would print them."""
    command = results.results if arguments[0] == "results" else logs.logs
    return CliRunner().invoke(command, [*arguments[1:], "--results", str(stage.results)])


def test_results_as_text_and_json(stage: Stage, say: Say) -> None:
    """The summary, the folder, and whether it is unchanged."""
    say()
    assert stage.collect(stage.attempt())
    shown = call(stage, "results", "17", "--verify")
    assert shown.exit_code == 0
    assert "state      COMPLETED, exit code 0" in shown.output
    assert f"folder     {stage.results}/17" in shown.output
    assert "verified   4 files are unchanged" in shown.output
    (found,) = json.loads(call(stage, "results", "17", "--format", "json").output)["results"]
    assert (found["summary"]["job_id"], found["checked"]) == (17, None)


def test_verify_lists_changed_files(stage: Stage, say: Say) -> None:
    """Exit code 1."""
    say()
    assert stage.collect(stage.attempt())
    folder = stage.results / "17"
    (folder / "stdout.log").write_text("changed")
    (folder / "stderr.log").unlink()
    (folder / "new").write_text("new")
    shown = call(stage, "results", "17", "--verify")
    assert shown.exit_code == 1
    for line in ("changed    stdout.log", "missing    stderr.log", "new        new"):
        assert f"{line}\n" in shown.output


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "CANCELLED"])
def test_missing_results(stage: Stage, say: Say, state: str) -> None:
    """Exit code 3, with the state of the job in Slurm."""
    say(record(state))
    error = call(stage, "results", "17").exception
    assert isinstance(error, NoResults)
    assert (error.exit_code, f"which is {state}" in error.message) == (3, True)
    (stage.results / ".17-0-01234567.partial").mkdir()
    error = call(stage, "results", "17").exception
    assert isinstance(error, NoResults)
    assert "are being collected" in error.message


@pytest.mark.parametrize("job", ["", "x", "17;ls", "../17", "17_", "1_2_3"])
def test_invalid_job_id_is_refused(stage: Stage, say: Say, job: str) -> None:
    """Before anything is read."""
    say()
    assert isinstance(call(stage, "results", job).exception, errors.UsageError)
    assert isinstance(call(stage, "logs", job).exception, errors.UsageError)


def test_results_folder_is_required(say: Say) -> None:
    """From the option or the environment."""
    say()
    error = CliRunner().invoke(results.results, ["17"]).exception
    assert isinstance(error, errors.UsageError)
    assert "PENSTOCK_RESULTS" in error.hint


def test_following_a_failed_job_exits_1(stage: Stage, say: Say) -> None:
    """After all of its output; without -f the exit code is 0."""
    out = stage.file("live.txt", "as far as it came\n")
    failed = record(state="FAILED", exit_code=7, signal=0, stdout=str(out))
    say(record(state="RUNNING", stdout=str(out)), failed)
    shown = call(stage, "logs", "17", "-f")
    assert shown.stdout == "as far as it came\n"
    assert isinstance(shown.exception, errors.PenstockError)
    assert (shown.exception.exit_code, shown.exception.message) == (1, "job 17 is FAILED 7:0")
    say(failed)
    assert call(stage, "logs", "17").exit_code == 0


def test_logs_are_written_unchanged(stage: Stage, say: Say) -> None:
    """Byte by byte; exit code 3 if there is no output."""
    out = stage.file("out", "to stdout\n")
    say(record("RUNNING", stdout=str(out), stderr="/nonexistent/err"))
    assert call(stage, "logs", "17").stdout_bytes == b"to stdout\n"
    error = call(stage, "logs", "17", "--stderr").exception
    assert isinstance(error, errors.NotThere)
    assert (error.exit_code, error.message) == (3, "/nonexistent/err does not exist: job 17 is RUNNING")


def test_requeue_is_reported_on_stderr(stage: Stage, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe gets only the job's output."""

    async def twice(*_: object, **__: object) -> AsyncIterator[view.Piece]:
        for piece in (view.Piece(b"first\n"), view.Piece(began_again=True), view.Piece(b"second\n")):
            yield piece

    say()
    monkeypatch.setattr(view.Output, "read", twice)
    shown = call(stage, "logs", "17", "-f")
    assert (shown.stdout, shown.stderr) == (
        "first\nsecond\n",
        "penstock: the job was requeued, its output starts again\n",
    )


def test_logs_of_daemons_in_lab(stage: Stage, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """penstockd's by default."""
    say()
    (stage.base / "log").mkdir()
    (stage.base / "log" / "penstockd.log").write_text("listening\n")
    monkeypatch.setenv("PENSTOCK_LAB", str(stage.base))
    assert call(stage, "logs", "--daemon", "penstockd").output == "listening\n"
    assert "no log of collector" in str(call(stage, "logs", "--daemon", "collector").exception)
