"""From a record to a results folder: its content and ownership, repetitions and failures."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest

from penstock.model import attempts
from penstock.results import collection, identity
from tests.results import stage as staging
from tests.results.stage import OTHER, USER, Stage

as_root = pytest.mark.skipif(not staging.IS_ROOT, reason="only root can become another user")


def test_results_folder_is_complete(stage: Stage) -> None:
    """Logs, summaries, outputs and checksums, all owned by the user; the record is removed."""
    attempt = stage.attempt(outputs=("data/*.csv",), stderr=os.fsencode(stage.file("err.txt", "oops\n")))
    stage.file("data/a b.csv")
    stage.output_folder(attempt, model="precious")
    assert stage.collect(attempt)
    folder = stage.results / "17"
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    names = {"stdout.log", "stderr.log", "job_summary.txt", "job_summary.json", "checksums.txt"}
    assert found == names | {"outputs/data/a b.csv", "outputs/model"}
    assert (folder / "stdout.log").read_text() == "hello\n"
    assert (folder / "stderr.log").read_text() == "oops\n"
    assert {path.stat().st_uid for path in (folder, *folder.rglob("*"))} == {USER.uid}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (staging.sha256sum(folder), staging.uncovered(folder)) == ("", set())
    assert (stage.names(), list((stage.settings.state / "ended").iterdir())) == (["17"], [])
    assert stage.summary().complete
    assert (stage.home / "data" / "a b.csv").exists()
    assert not Path(attempt.output_dir).exists()


def test_array_task_folder_name(stage: Stage) -> None:
    """20_3, not the job id of the task."""
    assert stage.collect(stage.attempt(23), shown="20_3")
    assert stage.names() == ["20_3"]


def test_name_at_launch_has_precedence(stage: Stage) -> None:
    """slurmdbd may know a task only by its job id, and slurmctld may have forgotten it by then."""
    assert stage.collect(stage.attempt(23, shown_id="20_3"), shown="23")
    path = stage.leave(stage.attempt(24, shown_id="20_4"))
    assert collection.collect(stage.settings, path, None)
    assert stage.names() == ["20_3", "20_4"]
    assert (stage.summary("20_3").job, stage.summary("20_4").job) == ("20_3", "20_4")


def test_merged_stderr(stage: Stage) -> None:
    """stderr.log is empty; the summary says where errors are."""
    assert stage.collect(stage.attempt())
    assert (stage.results / "17" / "stderr.log").read_bytes() == b""
    assert "stderr     in stdout.log" in (stage.results / "17" / "job_summary.txt").read_text()


def test_earlier_attempts_are_kept(stage: Stage) -> None:
    """Each complete in its own folder; the last one is at the top."""
    for restart in range(3):
        attempt = stage.attempt(restart=restart, out=f"attempt {restart}\n")
        stage.output_folder(attempt, result=f"result {restart}")
        assert stage.collect(attempt)
    folder = stage.results / "17"
    for restart, where in ((0, folder / "attempt-0"), (1, folder / "attempt-1"), (2, folder)):
        assert (where / "stdout.log").read_text() == f"attempt {restart}\n"
        assert (where / "outputs" / "result").read_text() == f"result {restart}"
        assert staging.sha256sum(where) == ""
    assert not (folder / "attempt-1" / "attempt-0").exists()
    assert staging.uncovered(folder) == set()
    assert stage.names() == ["17"]


def test_collecting_twice_changes_nothing(stage: Stage) -> None:
    """A record that reappears after a crash finds its results in place."""
    attempt = stage.attempt()
    stage.output_folder(attempt, model="precious")
    assert stage.collect(attempt)
    before = (stage.results / "17" / "checksums.txt").read_bytes()
    assert stage.collect(attempt)
    assert (stage.results / "17" / "checksums.txt").read_bytes() == before
    assert stage.names() == ["17"]


def test_reused_job_id_sets_old_folder_aside(stage: Stage) -> None:
    """After Slurm restarted its count: nothing is mixed up or lost."""
    assert stage.collect(stage.attempt(out="old\n", token="a" * 32))
    assert stage.collect(stage.attempt(out="new\n", token="b" * 32))
    assert stage.names() == ["17", "17.1"]
    assert (stage.results / "17" / "stdout.log").read_text() == "new\n"
    assert (stage.results / "17.1" / "stdout.log").read_text() == "old\n"


@pytest.mark.parametrize("restart", [1, 3])
def test_reused_job_id_with_refused_admissions(stage: Stage, restart: int) -> None:
    """Refused admissions count as restarts, so the restart number does not prove the same job."""
    assert stage.collect(stage.attempt(out="old\n", submission="900"))
    assert stage.collect(stage.attempt(restart=restart, out="new\n", submission="950"))
    assert stage.names() == ["17", "17.1"]
    assert (stage.results / "17" / "stdout.log").read_text() == "new\n"
    assert (stage.results / "17.1" / "stdout.log").read_text() == "old\n"
    assert not (stage.results / "17" / "attempt-0").exists()


def test_requeued_completed_job(stage: Stage) -> None:
    """`scontrol requeue` of a completed job, with refused admissions in between, is the same job."""
    assert stage.collect(stage.attempt(out="first\n"))
    assert stage.summary().state == "COMPLETED"
    assert stage.collect(stage.attempt(restart=4, out="second\n"))
    assert stage.names() == ["17"]
    assert (stage.results / "17" / "attempt-0" / "stdout.log").read_text() == "first\n"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [("900", "900", True), ("900", "950", False), ("", "950", False), ("900", "", False), ("", "", False)],
)
def test_later_attempt_of_same_job(stage: Stage, first: str, second: str, *, same: bool) -> None:
    """By submission time; unknown ones stay apart."""
    there = identity.Existing(job_id=17, restarts=0, submission=first or None)
    assert identity.continues(stage.attempt(restart=1, submission=second), there) is same
    for other in (stage.attempt(18, restart=1, submission=second), stage.attempt(submission=second)):
        assert not identity.continues(other, there)


def test_reused_job_id_of_other_user(stage: Stage) -> None:
    """The other user's folder is not read."""
    (stage.results / "17").mkdir(mode=0o700)
    if staging.IS_ROOT:
        stage.own(stage.results / "17", OTHER)
    assert stage.collect(stage.attempt())
    assert stage.names() == ["17", "17.1"]


@pytest.mark.parametrize("kind", ["link", "file"])
def test_other_entry_with_the_name_is_set_aside(stage: Stage, kind: str) -> None:
    """Only root can have put it there; it is kept and not followed."""
    target = stage.results / "17"
    if kind == "link":
        target.symlink_to(stage.home)
    else:
        target.write_text("mine")
    before = sorted(stage.home.iterdir())
    attempt = stage.attempt()
    assert stage.collect(attempt)
    assert stage.names() == ["17", "17.1"]
    assert not (stage.results / "17").is_symlink()
    assert sorted(stage.home.iterdir()) == sorted({*before, stage.home / "slurm-17.out"})


def test_full_disk_is_reported_and_resumed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary says so; the record stays, and a later try completes the folder."""
    attempt = stage.attempt(outputs=("*.csv",))
    stage.file("a.csv")
    stage.output_folder(attempt, model="precious")

    with monkeypatch.context() as patch:
        patch.setattr("penstock.results.filecopy.link_or_copy", staging.full)
        assert not stage.collect(attempt)
        assert not stage.collect(attempt)
    text = (stage.results / "17" / "job_summary.txt").read_text()
    assert text.startswith("INCOMPLETE, will be retried: No space left on device\n")
    assert not (stage.results / "17" / "checksums.txt").exists()
    assert (stage.settings.state / "ended" / "17-0.json").exists()
    assert stage.collect(attempt)
    assert (stage.results / "17" / "outputs" / "model").read_text() == "precious"
    assert (stage.results / "17" / "outputs" / "a.csv").exists()
    assert staging.sha256sum(stage.results / "17") == ""
    assert stage.names() == ["17"]


def test_folder_without_summary_stays_partial(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a summary the folder could not be recognised."""
    attempt = stage.attempt()
    stage.output_folder(attempt, model="precious")

    with monkeypatch.context() as patch:
        patch.setattr("penstock.results.contents._write_summary", staging.full)
        for _ in range(2):
            assert not stage.collect(attempt)
            assert [name.endswith(".partial") for name in stage.names()] == [True]
    assert stage.collect(attempt)
    assert stage.names() == ["17"]
    assert (stage.results / "17" / "outputs" / "model").read_text() == "precious"


def test_full_disk_keeps_earlier_attempt(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the next one is complete."""
    assert stage.collect(stage.attempt(out="first\n"))
    second = stage.attempt(restart=1, out="second\n")

    with monkeypatch.context() as patch:
        patch.setattr("penstock.results.filecopy.copy", staging.full)
        assert not stage.collect(second)
    assert (stage.results / "17" / "stdout.log").read_text() == "first\n"
    assert staging.sha256sum(stage.results / "17") == ""
    assert stage.collect(second)
    assert (stage.results / "17" / "attempt-0" / "stdout.log").read_text() == "first\n"
    assert stage.names() == ["17"]


def test_overtaken_attempt_has_a_note(stage: Stage) -> None:
    """The collector was down when the next attempt started."""
    first, second = stage.attempt(), stage.attempt(restart=1)
    (stage.settings.state / "running" / second.name).write_bytes(msgspec.json.encode(second))
    assert stage.collect(first)
    assert "a later attempt started before this one was collected" in " ".join(stage.summary().notes)


def test_missing_output_file_has_a_note(stage: Stage) -> None:
    """Removed by its owner, or never on this host."""
    attempt = stage.attempt(stdout=b"/nonexistent/out", stderr=b"/dev/null")
    assert stage.collect(attempt)
    (note,) = stage.summary().notes
    assert note == "stdout.log: /nonexistent/out could not be read: No such file or directory"


def test_results_without_slurm_record(stage: Stage) -> None:
    """Unknown values are null, with a note."""
    attempt = stage.attempt(end=None)
    assert collection.collect(stage.settings, stage.leave(attempt), None)
    found = stage.summary()
    assert (found.state, found.exit_code, found.times.ended, found.used.elapsed_seconds) == (
        None,
        None,
        None,
        None,
    )
    assert found.notes == ("Slurm did not report how the job ended",)


def test_locked_record_is_left_alone(stage: Stage) -> None:
    """A child of a killed collector may still work on it."""
    attempt = stage.attempt()
    path = stage.leave(attempt)
    with collection._locked(path) as content:
        assert content is not None
        assert not stage.collect(attempt)
    assert stage.names() == []
    assert path.exists()


def test_outputs_copied_by_the_agent(stage: Stage) -> None:
    """The mark is removed; without it a note says that files may be missing."""
    whole = stage.attempt(outputs=("*.csv",), workdir=b"/app", workdir_is_shared=False)
    stage.output_folder(whole, **{"a.csv": "1", ".penstock-copied": ""})
    assert stage.collect(whole)
    assert sorted(path.name for path in (stage.results / "17" / "outputs").iterdir()) == ["a.csv"]
    assert stage.summary().notes == ()
    assert stage.names() == ["17"]
    assert staging.uncovered(stage.results / "17") == set()
    short = stage.attempt(18, outputs=("*.csv",), workdir=b"/app", workdir_is_shared=False)
    stage.output_folder(short)
    assert stage.collect(short)
    assert "ended before its files were copied" in " ".join(stage.summary("18").notes)


def test_missing_output_dir_has_a_note(stage: Stage) -> None:
    """As on a cluster without the NAS."""
    assert stage.collect(stage.attempt(output_dir=""))
    assert stage.summary().notes == ("PENSTOCK_OUTPUT_DIR was not set: pods do not see the results folder",)
    assert stage.collect(stage.attempt(18, output_dir="", uncollected=True))
    assert stage.summary("18").notes == ("PENSTOCK_OUTPUT_DIR was not set: the collector had never run",)


def test_unknown_user_is_retried(stage: Stage) -> None:
    """The name service may come back."""
    attempt = stage.attempt(uid=3_999_999_999)
    assert not stage.collect(attempt)
    assert (stage.settings.state / "ended" / attempt.name).exists()


def test_record_is_given_up_after_days(stage: Stage) -> None:
    """Later attempts of the job can go on; the record is kept for the administrator."""
    attempt = stage.attempt(uid=3_999_999_999, closed=1.0)
    assert stage.collect(attempt)
    assert not (stage.settings.state / "ended" / attempt.name).exists()
    assert (stage.settings.state / "given-up" / attempt.name).exists()


@as_root
def test_unreadable_earlier_folder_is_given_up(stage: Stage) -> None:
    """Its content is unknown, so it stays in place; later attempts do not wait forever."""
    assert stage.collect(stage.attempt())
    (stage.results / "17").chmod(0)
    assert not stage.collect(stage.attempt(restart=1))
    (stage.settings.state / "ended" / "17-1.json").unlink()
    assert stage.collect(stage.attempt(restart=1, closed=1.0))
    assert (stage.settings.state / "given-up" / "17-1.json").exists()
    assert stage.names() == ["17"]


def test_attempt_survives_json() -> None:
    """With any bytes in paths."""
    attempt = attempts.Attempt(
        job_id=1, restart=0, uid=1, token="t", launched=1.0, partition="p", stdout=b"\xff\n\0"
    )
    assert msgspec.json.decode(msgspec.json.encode(attempt), type=attempts.Attempt) == attempt


def test_log_copied_before_requeue_is_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage was full for the rest, and the job has been requeued since."""
    first = stage.attempt(out="first\n", outputs=("*.csv",))
    stage.file("a.csv")

    with monkeypatch.context() as patch:
        patch.setattr("penstock.results.filecopy.link_or_copy", staging.full)
        assert not stage.collect(first)
    second = stage.attempt(restart=1, out="second\n")
    (stage.settings.state / "running" / second.name).write_bytes(msgspec.json.encode(second))
    assert stage.collect(first)
    assert (stage.results / "17" / "stdout.log").read_text() == "first\n"
    assert staging.sha256sum(stage.results / "17") == ""


@pytest.mark.parametrize("names", [("", "20_3"), ("20_3", "")])
def test_partial_folder_survives_change_of_name(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]
) -> None:
    """Slurm reports the array only later, or forgets it: the same folder is continued."""
    attempt = stage.attempt(23, outputs=("*.csv",))
    stage.output_folder(attempt, model="precious")
    stage.file("a.csv")
    path = stage.leave(attempt)
    records = [staging.record_of(attempt, shown=name) if name else None for name in names]

    with monkeypatch.context() as patch:
        patch.setattr("penstock.results.filecopy.link_or_copy", staging.full)
        assert not collection.collect(stage.settings, path, records[0])
    assert collection.collect(stage.settings, path, records[1])
    assert stage.names() == ["20_3"]
    assert (stage.results / "20_3" / "outputs" / "model").read_text() == "precious"
    assert stage.summary("20_3").state == "COMPLETED"
    assert list((stage.settings.state / "told").iterdir()) == []


def test_general_notes_are_never_dropped(stage: Stage) -> None:
    """Notes on single files are limited."""
    attempt = stage.attempt(outputs=("*.csv",))
    for number in range(30):
        (stage.home / f"{number}.csv").symlink_to("nowhere")
    stage.file("large.csv", "x" * 100)
    limits = msgspec.structs.replace(stage.settings.limits, output_bytes=50)
    chosen = msgspec.structs.replace(stage.settings, limits=limits)
    assert collection.collect(chosen, stage.leave(attempt), staging.record_of(attempt))
    notes = stage.summary().notes
    assert notes[0] == "1 files named by #K8S_OUTPUTS exceed the site's limits and were not collected"
    assert notes[-1] == "and 10 more notes on single files"


def test_summary_says_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of promising another try."""
    attempt = stage.attempt(outputs=("*.csv",), closed=1.0)
    stage.file("a.csv")

    monkeypatch.setattr("penstock.results.filecopy.link_or_copy", staging.full)
    assert stage.collect(attempt)
    assert (stage.settings.state / "given-up" / attempt.name).exists()
    text = (stage.results / "17" / "job_summary.txt").read_text()
    assert text.startswith("INCOMPLETE, given up: No space left on device\n")
    assert stage.summary().given_up
