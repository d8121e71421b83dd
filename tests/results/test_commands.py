"""`penstock results` and `penstock logs`, with Slurm and penstockd played."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock import errors
from penstock.cli import logs, results
from penstock.model import views
from penstock.results import tailing
from penstock.slurm import showing
from penstock.views import sources
from tests.results.stage import Stage

Say = Callable[..., None]


def record(
    job: str = "17", *, state: str = "COMPLETED", job_id: int = 17, **more: object
) -> showing.JobRecord:
    fields = {"user": "alice", "name": "train", "partition": "gpu", "nodes": ("n1",)} | more
    return showing.JobRecord(job_id=job_id, shown_id=job, state=state, **fields)  # type: ignore[arg-type]  # by name


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Say:
    """Decide what Slurm and penstockd answer; the last of several records for ever."""

    def decide(*records: showing.JobRecord, stdout: bytes = b"", away: bool = False) -> None:
        left = list(records)

        async def answer(slurm_conf: str, job: str) -> showing.JobRecord:
            await asyncio.sleep(0)
            if not left:
                raise errors.NotThere(f"Slurm knows no job {job}")
            return left.pop(0) if len(left) > 1 else left[0]

        async def answers(slurm_conf: str, job: str) -> tuple[showing.JobRecord, ...]:
            return (await answer(slurm_conf, job),)

        def describe(job_ids: tuple[int, ...]) -> sources.Answer:
            if away:
                raise errors.PenstockError("penstockd does not answer")
            return sources.Answer([views.JobView(job_ids[0], stdout=stdout, stderr=stdout)], sees_all=False)

        monkeypatch.setattr(showing, "record", answer)
        monkeypatch.setattr(showing, "records", answers)
        monkeypatch.setattr(sources, "describe", describe)

    monkeypatch.setattr(logs, "ASK_SLURM", 0.0)
    monkeypatch.setattr(logs, "POLL", 0.01)
    monkeypatch.delenv("PENSTOCK_RESULTS", raising=False)
    monkeypatch.delenv("PENSTOCK_LAB", raising=False)
    return decide


def call(stage: Stage, *arguments: str) -> Result:
    """Run it; our errors come back as the exception, as the program's main would print them."""
    command = results.results if arguments[0] == "results" else logs.logs
    return CliRunner().invoke(command, [*arguments[1:], "--results", str(stage.results)])


def test_results_for_people_and_programs(stage: Stage, say: Say) -> None:
    """The summary, where it lies, and whether it is unchanged."""
    say()
    assert stage.collect(stage.attempt())
    shown = call(stage, "results", "17", "--verify")
    assert shown.exit_code == 0
    assert "state      COMPLETED, exit code 0" in shown.output
    assert f"folder     {stage.results}/17" in shown.output
    assert "verified   4 files are as they were collected" in shown.output
    (found,) = json.loads(call(stage, "results", "17", "--format", "json").output)["results"]
    assert (found["summary"]["job_id"], found["checked"]) == (17, None)


def test_changed_results_are_told_file_by_file(stage: Stage, say: Say) -> None:
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


def test_earlier_attempts_and_array_tasks(stage: Stage, say: Say) -> None:
    """By the array's number, in the order of tasks; by Slurm's own number of a task."""
    say(record("20_10", job_id=31))
    for restart in (0, 1):
        assert stage.collect(stage.attempt(31, restart=restart), shown="20_10")
    assert stage.collect(stage.attempt(32), shown="20_9")
    found = json.loads(call(stage, "results", "20", "--format", "json").output)["results"]
    assert [(job["summary"]["job"], job["attempts"]) for job in found] == [
        ("20_9", []),
        ("20_10", ["attempt-0"]),
    ]
    assert "earlier    attempt-0" in call(stage, "results", "31").output


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "CANCELLED"])
def test_no_results_yet(stage: Stage, say: Say, state: str) -> None:
    """Exit code 3, and what Slurm says of the job."""
    say(record(state=state))
    error = call(stage, "results", "17").exception
    assert isinstance(error, results.NoResults)
    assert (error.exit_code, f"which is {state}" in error.message) == (3, True)
    (stage.results / ".17-0-01234567.partial").mkdir()
    error = call(stage, "results", "17").exception
    assert isinstance(error, results.NoResults)
    assert "are being collected" in error.message


def test_broken_results_are_said(stage: Stage, say: Say) -> None:
    """Their owner has changed the summary, or removed it."""
    say()
    assert stage.collect(stage.attempt())
    (stage.results / "17" / "job_summary.json").write_text("{")
    assert "has been changed" in str(call(stage, "results", "17").exception)
    (stage.results / "17" / "job_summary.json").unlink()
    assert "it has no job_summary.json" in str(call(stage, "results", "17").exception)


@pytest.mark.parametrize("job", ["", "x", "17;ls", "../17", "17_", "1_2_3"])
def test_what_is_no_job_is_refused(stage: Stage, say: Say, job: str) -> None:
    """Before anything is looked at."""
    say()
    assert isinstance(call(stage, "results", job).exception, errors.UsageError)
    assert isinstance(call(stage, "logs", job).exception, errors.UsageError)


def test_results_folder_must_be_known(say: Say) -> None:
    """From the option or the environment."""
    say()
    error = CliRunner().invoke(results.results, ["17"]).exception
    assert isinstance(error, errors.UsageError)
    assert "PENSTOCK_RESULTS" in error.hint


def test_logs_of_a_collected_job(stage: Stage, say: Say) -> None:
    """From the results, also when the original is gone."""
    say(record())
    assert stage.collect(stage.attempt(out="collected\n"))
    (stage.home / "slurm-17.out").unlink()
    assert call(stage, "logs", "17").output == "collected\n"
    assert call(stage, "logs", "17", "--stderr").output == ""


def test_logs_of_a_running_job(stage: Stage, say: Say) -> None:
    """From the file that penstockd names, or Slurm when that is away."""
    out = stage.file("live.txt", "live\n")
    say(record(state="RUNNING"), stdout=str(out).encode())
    assert call(stage, "logs", "17").output == "live\n"
    say(record(state="RUNNING", stdout=str(out)), away=True)
    assert call(stage, "logs", "17").output == "live\n"
    say(record(state="PENDING"))
    assert "stdout is not known" in str(call(stage, "logs", "17").exception)


def test_job_that_waits_is_followed_from_its_first_line(stage: Stage, say: Say) -> None:
    """Slurm does not fill in all patterns of a job that waits: the file that penstockd names later counts."""
    stage.file("live-17-train.txt", "first\n")
    waiting = record(state="PENDING", stdout=str(stage.home / "live-17-%x.txt"))
    live = record(state="RUNNING", stdout=str(stage.home / "live-17-train.txt"))
    say(waiting, waiting, live, record(state="COMPLETED", stdout=live.stdout), away=True)
    assert call(stage, "logs", "17", "-f").stdout == "first\n"


def test_output_of_an_ended_job_that_nobody_can_find_is_no_empty_output(stage: Stage, say: Say) -> None:
    """Slurm has forgotten the job's path, and no results were kept: exit code 3, also with -f."""
    say(record(state="COMPLETED"), away=True)
    error = call(stage, "logs", "17", "-f").exception
    assert isinstance(error, errors.NotThere)
    assert error.message == "the path of job 17's stdout is not known"


def test_job_that_was_too_fast_is_shown_from_its_results(stage: Stage, say: Say) -> None:
    """It was over before anybody could say where it wrote."""
    assert stage.collect(stage.attempt(out="fast\n"))
    say(record(state="PENDING"), record(state="COMPLETED"))
    assert call(stage, "logs", "17", "-f").stdout == "fast\n"


def test_logs_are_followed_to_the_end(stage: Stage, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes meanwhile is shown, also of a second attempt that empties the file."""
    out = stage.file("live.txt", "first attempt\n")
    states = [
        record(state="RUNNING"),
        record(state="RUNNING"),
        record(state="PENDING"),
        record(state="COMPLETED"),
    ]
    say(*states, stdout=str(out).encode())
    texts = iter(["second\n", "second\nand last\n"])
    monkeypatch.setattr("time.sleep", lambda seconds: out.write_text(next(texts, "second\nand last\n")))
    shown = call(stage, "logs", "17", "-f")
    assert shown.stdout.startswith("first attempt\nsecond\nand last\n")
    assert "the job began again" in shown.stderr


def test_missing_output_is_said(stage: Stage, say: Say) -> None:
    """Not there yet, or not on this host: exit code 3, with what is known of the job."""
    say(record(state="RUNNING"), stdout=b"/nonexistent/out")
    error = call(stage, "logs", "17").exception
    assert isinstance(error, errors.NotThere)
    assert (error.exit_code, error.message) == (3, "/nonexistent/out is not there: job 17 is RUNNING")
    say(record(state="FAILED", comment="no such folder"), stdout=b"/nonexistent/out")
    error = call(stage, "logs", "17", "-f").exception
    assert isinstance(error, errors.NotThere)
    assert error.hint == "no such folder"


def test_output_that_nobody_could_collect_is_no_empty_output(stage: Stage, say: Say) -> None:
    """Exit code 3 and the reason, where the collected file is empty because there was nothing to read."""
    say(record(state="FAILED", comment="slurmd could not open its output"))
    assert stage.collect(stage.attempt(stdout=b"/nonexistent/out", stderr=b"/nonexistent/out"))
    for arguments in (("17",), ("17", "-f")):
        error = call(stage, "logs", *arguments).exception
        assert isinstance(error, errors.NotThere)
        assert (
            error.message
            == "job 17 has no stdout: /nonexistent/out could not be read: No such file or directory"
        )
        assert error.hint == "slurmd could not open its output"


def test_who_follows_a_job_that_fails_is_told_so(stage: Stage, say: Say) -> None:
    """Exit code 1 behind all of its output; without -f the output is all that was asked for."""
    out = stage.file("live.txt", "as far as it came\n")
    failed = record(state="FAILED", exit_code=7, signal=0, stdout=str(out))
    say(record(state="RUNNING", stdout=str(out)), failed)
    shown = call(stage, "logs", "17", "-f")
    assert shown.stdout == "as far as it came\n"
    assert isinstance(shown.exception, errors.PenstockError)
    assert (shown.exception.exit_code, shown.exception.message) == (1, "job 17 is FAILED 7:0")
    say(failed)
    assert call(stage, "logs", "17").exit_code == 0


def test_logs_of_services_in_a_lab(stage: Stage, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """penstockd's without a name."""
    say()
    (stage.base / "log").mkdir()
    (stage.base / "log" / "penstockd.log").write_text("listening\n")
    monkeypatch.setenv("PENSTOCK_LAB", str(stage.base))
    assert call(stage, "logs", "--daemon", "penstockd").output == "listening\n"
    assert "has no collector" in str(call(stage, "logs", "--daemon", "collector").exception)


def test_tail_of_a_file_that_grows_and_begins_again(tmp_path: Path) -> None:
    """Every byte once; a new file from its beginning."""
    path = tmp_path / "out"
    tail = tailing.Tail(path)
    assert list(tail.more()) == []
    path.write_text("one")
    assert b"".join(tail.more()) == b"one"
    with path.open("a") as stream:
        stream.write(" two")
    assert b"".join(tail.more()) == b" two"
    path.write_text("x")
    assert (b"".join(tail.more()), tail.began_again) == (b"x", 1)
    (tmp_path / "new").write_text("another file")
    (tmp_path / "new").replace(path)
    assert (b"".join(tail.more()), tail.began_again) == (b"another file", 2)
