"""From a record to a results folder: what is in it, whose it is, and that nothing can spoil it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest

from penstock import errors
from penstock.model import attempts
from penstock.nas import asuser
from penstock.results import collection, identity, resultsroot
from tests.results import stage as staging
from tests.results.stage import OTHER, USER, Stage

as_root = pytest.mark.skipif(not staging.IS_ROOT, reason="only root can become another user")


def test_results_folder_is_whole(stage: Stage) -> None:
    """Logs, summaries, outputs and checksums of everything else, all the user's; the record is gone."""
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


def test_array_task_has_its_own_name(stage: Stage) -> None:
    """20_3, not the number that Slurm counts it by."""
    assert stage.collect(stage.attempt(23), shown="20_3")
    assert stage.names() == ["20_3"]


def test_the_name_at_launch_outweighs_the_accountings(stage: Stage) -> None:
    """slurmdbd may know a task by its own number alone, and slurmctld may have forgotten it by then."""
    assert stage.collect(stage.attempt(23, shown_id="20_3"), shown="23")
    path = stage.leave(stage.attempt(24, shown_id="20_4"))
    assert collection.collect(stage.settings, path, None)
    assert stage.names() == ["20_3", "20_4"]
    assert (stage.summary("20_3").job, stage.summary("20_4").job) == ("20_3", "20_4")


def test_merged_output_is_said(stage: Stage) -> None:
    """stderr.log is there and empty; the summary tells where errors are."""
    assert stage.collect(stage.attempt())
    assert (stage.results / "17" / "stderr.log").read_bytes() == b""
    assert "stderr     in stdout.log" in (stage.results / "17" / "job_summary.txt").read_text()


def test_earlier_attempts_are_kept(stage: Stage) -> None:
    """Each whole and under its number, however many there are; the last one is on top."""
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
    """A record that comes back after a crash finds its results in place."""
    attempt = stage.attempt()
    stage.output_folder(attempt, model="precious")
    assert stage.collect(attempt)
    before = (stage.results / "17" / "checksums.txt").read_bytes()
    assert stage.collect(attempt)
    assert (stage.results / "17" / "checksums.txt").read_bytes() == before
    assert stage.names() == ["17"]


def test_number_that_another_job_had_before(stage: Stage) -> None:
    """After Slurm began counting anew: the old results get another name, nothing is mixed or lost."""
    assert stage.collect(stage.attempt(out="old\n", token="a" * 32))
    assert stage.collect(stage.attempt(out="new\n", token="b" * 32))
    assert stage.names() == ["17", "17.1"]
    assert (stage.results / "17" / "stdout.log").read_text() == "new\n"
    assert (stage.results / "17.1" / "stdout.log").read_text() == "old\n"


@pytest.mark.parametrize("restart", [1, 3])
def test_number_that_another_job_had_before_a_refused_one(stage: Stage, restart: int) -> None:
    """Refused admissions count as restarts: the new job's first attempt is no later one of the old job's."""
    assert stage.collect(stage.attempt(out="old\n", submission="900"))
    assert stage.collect(stage.attempt(restart=restart, out="new\n", submission="950"))
    assert stage.names() == ["17", "17.1"]
    assert (stage.results / "17" / "stdout.log").read_text() == "new\n"
    assert (stage.results / "17.1" / "stdout.log").read_text() == "old\n"
    assert not (stage.results / "17" / "attempt-0").exists()


def test_ended_job_that_was_sent_back(stage: Stage) -> None:
    """`scontrol requeue` of a job that had completed, with refused admissions in between: the same job."""
    assert stage.collect(stage.attempt(out="first\n"))
    assert stage.summary().state == "COMPLETED"
    assert stage.collect(stage.attempt(restart=4, out="second\n"))
    assert stage.names() == ["17"]
    assert (stage.results / "17" / "attempt-0" / "stdout.log").read_text() == "first\n"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [("900", "900", True), ("900", "950", False), ("", "950", False), ("900", "", False), ("", "", False)],
)
def test_which_attempt_follows_which(stage: Stage, first: str, second: str, *, same: bool) -> None:
    """By the time of submission; what nobody knows of stays apart."""
    there = identity.Existing(job_id=17, restarts=0, submission=first or None)
    assert identity.continues(stage.attempt(restart=1, submission=second), there) is same
    for other in (stage.attempt(18, restart=1, submission=second), stage.attempt(submission=second)):
        assert not identity.continues(other, there)


def test_number_that_another_users_job_had_before(stage: Stage) -> None:
    """Their folder is not even looked into."""
    (stage.results / "17").mkdir(mode=0o700)
    if staging.IS_ROOT:
        stage.own(stage.results / "17", OTHER)
    assert stage.collect(stage.attempt())
    assert stage.names() == ["17", "17.1"]


@pytest.mark.parametrize("kind", ["link", "file"])
def test_whatever_else_has_the_name_makes_room(stage: Stage, kind: str) -> None:
    """Nobody but root can have put it there; it is kept, and not followed."""
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


@as_root
@pytest.mark.parametrize("name", ["17", "18", ".17-0-00000000.partial", ".outputs/x", ".penstock-results"])
def test_users_cannot_be_there_first(stage: Stage, name: str) -> None:
    """Neither with a folder, nor with a link, nor by renaming; only among output folders, as is meant."""
    resultsroot.prepare(stage.results, stage.settings.state)

    def attack() -> list[str]:
        done = []
        target = stage.results / name
        for what, step in (
            ("folder", target.mkdir),
            ("link", lambda: target.symlink_to("/etc")),
            ("rename", lambda: stage.home.rename(target)),
            ("remove", target.unlink),
        ):
            try:
                step()
                done.append(what)
            except OSError:
                pass
        return done

    assert asuser.run_as(OTHER, attack, type=list[str], timeout=60) == (
        ["folder"] if name.startswith(".outputs/") else []
    )


@as_root
def test_output_folders_of_others_can_be_neither_listed_nor_taken(stage: Stage) -> None:
    """The folder of folders can be written and passed, but not read; what is in it has one owner."""
    resultsroot.prepare(stage.results, stage.settings.state)
    attempt = stage.attempt()
    folder = stage.output_folder(attempt, secret="x")

    def attack() -> list[str]:
        done = []
        for what, step in (
            ("list", lambda: list(folder.parent.iterdir())),
            ("read", (folder / "secret").read_bytes),
            ("rename", lambda: folder.rename(folder.with_name("mine"))),
            ("remove", folder.rmdir),
            ("replace", folder.mkdir),
        ):
            try:
                step()
                done.append(what)
            except OSError:
                pass
        return done

    assert asuser.run_as(OTHER, attack, type=list[str], timeout=60) == []


@as_root
def test_files_that_the_user_cannot_read_stay_unread(stage: Stage) -> None:
    """A job that claims another's file as its output gets nothing of it."""
    secret = stage.base / "secret"
    secret.write_text("root's own")
    secret.chmod(0o600)
    stage.own(stage.base / "secret", asuser.User.of(0))
    (stage.home / "link.csv").symlink_to(secret)
    attempt = stage.attempt(
        stdout=os.fsencode(secret),
        stderr=os.fsencode(stage.home / "link.csv"),
        outputs=("*.csv", "../secret"),
    )
    assert stage.collect(attempt)
    folder = stage.results / "17"
    assert all(b"root's own" not in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    notes = " ".join(stage.summary().notes)
    assert "Permission denied" in notes
    assert "link.csv: a link, not followed" in notes


@as_root
def test_output_folder_that_is_somebody_elses_is_not_taken(stage: Stage) -> None:
    """Should one ever have that name, the user may not move it, and the results are called incomplete."""
    resultsroot.prepare(stage.results, stage.settings.state)
    attempt = stage.attempt()
    folder = stage.output_folder(attempt, theirs="theirs")
    stage.own(folder, OTHER)
    assert not stage.collect(attempt)
    assert (folder / "theirs").exists()
    assert not stage.summary().complete


def test_full_disk_is_said_and_resumed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner sees a summary that says so; the record stays, and later everything is there."""
    attempt = stage.attempt(outputs=("*.csv",))
    stage.file("a.csv")
    stage.output_folder(attempt, model="precious")

    with monkeypatch.context() as patch:
        patch.setattr("penstock.results.filecopy.link_or_copy", staging.full)
        assert not stage.collect(attempt)
        assert not stage.collect(attempt)
    text = (stage.results / "17" / "job_summary.txt").read_text()
    assert text.startswith("INCOMPLETE, will be tried again: No space left on device\n")
    assert not (stage.results / "17" / "checksums.txt").exists()
    assert (stage.settings.state / "ended" / "17-0.json").exists()
    assert stage.collect(attempt)
    assert (stage.results / "17" / "outputs" / "model").read_text() == "precious"
    assert (stage.results / "17" / "outputs" / "a.csv").exists()
    assert staging.sha256sum(stage.results / "17") == ""
    assert stage.names() == ["17"]


def test_full_disk_that_takes_no_summary_shows_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could tell whose folder that is: it keeps its own name until it has a summary."""
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


def test_full_disk_leaves_an_earlier_attempt_in_place(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was whole stays whole until there is something better."""
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


def test_output_that_a_later_attempt_may_have_changed_is_said(stage: Stage) -> None:
    """The collector was away when the next attempt began."""
    first, second = stage.attempt(), stage.attempt(restart=1)
    (stage.settings.state / "running" / second.name).write_bytes(msgspec.json.encode(second))
    assert stage.collect(first)
    assert "a later attempt began before this one was collected" in " ".join(stage.summary().notes)


def test_missing_output_file_is_said(stage: Stage) -> None:
    """The job's owner has removed it, or it was never on this host."""
    attempt = stage.attempt(stdout=b"/nonexistent/out", stderr=b"/dev/null")
    assert stage.collect(attempt)
    (note,) = stage.summary().notes
    assert note == "stdout.log: /nonexistent/out could not be read: No such file or directory"


def test_without_a_word_from_slurm(stage: Stage) -> None:
    """What is not known is null, and said."""
    attempt = stage.attempt(end=None)
    assert collection.collect(stage.settings, stage.leave(attempt), None)
    found = stage.summary()
    assert (found.state, found.exit_code, found.times.ended, found.used.elapsed_seconds) == (
        None,
        None,
        None,
        None,
    )
    assert found.notes == ("Slurm did not tell how the job ended",)


def test_unmounted_results_are_recognised(stage: Stage) -> None:
    """An empty mount point is not the folder it was: nothing is written there."""
    assert stage.collect(stage.attempt())
    stage.results.rename(stage.base / "mounted")
    stage.results.mkdir(mode=0o755)
    with pytest.raises(errors.NasUnavailable, match="is its file system mounted"):
        stage.collect(stage.attempt(18))
    assert list(stage.results.iterdir()) == []
    stage.results.rmdir()
    with pytest.raises(errors.NasUnavailable, match="No such file"):
        stage.collect(stage.attempt(18))
    (stage.base / "mounted").rename(stage.results)
    assert stage.collect(stage.attempt(18))
    assert stage.names() == ["17", "18"]


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_results_folder_that_users_could_write_is_refused(stage: Stage, mode: int) -> None:
    """In words that say what to do."""
    stage.results.chmod(mode)
    with pytest.raises(errors.NasUnavailable) as caught:
        stage.collect(stage.attempt())
    assert "chmod 755" in caught.value.hint


def test_record_that_is_being_worked_on_is_left_alone(stage: Stage) -> None:
    """By a process of a collector that was killed, for example; and looked at again later, not at once."""
    attempt = stage.attempt()
    path = stage.leave(attempt)
    with collection._locked(path) as content:
        assert content is not None
        assert not stage.collect(attempt)
    assert stage.names() == []
    assert path.exists()


def test_outputs_copied_by_the_agent(stage: Stage) -> None:
    """Its mark does not stay; without it the owner is told that files may be missing."""
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
    assert "ended before its files were copied out" in " ".join(stage.summary("18").notes)


def test_jobs_whose_pods_see_no_results_are_told(stage: Stage) -> None:
    """A cluster without the NAS."""
    assert stage.collect(stage.attempt(output_dir=""))
    assert stage.summary().notes == ("PENSTOCK_OUTPUT_DIR was not set: pods do not see the results",)
    assert stage.collect(stage.attempt(18, output_dir="", uncollected=True))
    assert stage.summary("18").notes == ("PENSTOCK_OUTPUT_DIR was not set: the collector had never run",)


def test_user_that_is_not_known_yet(stage: Stage) -> None:
    """The record stays, for the host's list of users may come back."""
    attempt = stage.attempt(uid=3_999_999_999)
    assert not stage.collect(attempt)
    assert (stage.settings.state / "ended" / attempt.name).exists()


def test_what_fails_for_days_is_given_up_and_kept(stage: Stage) -> None:
    """So that later attempts of the job are not kept waiting; the record is there for the administrator."""
    attempt = stage.attempt(uid=3_999_999_999, closed=1.0)
    assert stage.collect(attempt)
    assert not (stage.settings.state / "ended" / attempt.name).exists()
    assert (stage.settings.state / "given-up" / attempt.name).exists()


@as_root
def test_earlier_folder_that_its_owner_has_closed_is_waited_for_and_given_up(stage: Stage) -> None:
    """Nobody knows what is in it: it stays where it is, and later attempts do not wait for ever."""
    assert stage.collect(stage.attempt())
    (stage.results / "17").chmod(0)
    assert not stage.collect(stage.attempt(restart=1))
    (stage.settings.state / "ended" / "17-1.json").unlink()
    assert stage.collect(stage.attempt(restart=1, closed=1.0))
    assert (stage.settings.state / "given-up" / "17-1.json").exists()
    assert stage.names() == ["17"]


def test_record_of_an_attempt_is_read_as_it_was_written() -> None:
    """Whatever bytes a path is made of."""
    attempt = attempts.Attempt(
        job_id=1, restart=0, uid=1, token="t", launched=1.0, partition="p", stdout=b"\xff\n\0"
    )
    assert msgspec.json.decode(msgspec.json.encode(attempt), type=attempts.Attempt) == attempt


def test_output_that_was_copied_before_a_later_attempt_emptied_it_is_kept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage was full for the rest, and the job has been sent back meanwhile."""
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
def test_outputs_are_not_lost_to_another_name(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]
) -> None:
    """Slurm tells of the array it is of only later, or forgets it: what was begun is gone on with."""
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


def test_many_links_do_not_hide_what_was_left_out(stage: Stage) -> None:
    """What is said of single files is cut short; what concerns the whole is always said."""
    attempt = stage.attempt(outputs=("*.csv",))
    for number in range(30):
        (stage.home / f"{number}.csv").symlink_to("nowhere")
    stage.file("large.csv", "x" * 100)
    limits = msgspec.structs.replace(stage.settings.limits, output_bytes=50)
    chosen = msgspec.structs.replace(stage.settings, limits=limits)
    assert collection.collect(chosen, stage.leave(attempt), staging.record_of(attempt))
    notes = stage.summary().notes
    assert notes[0] == "1 files that #K8S_OUTPUTS names are beyond the site's limits and were left"
    assert notes[-1] == "and 10 more of these"


def test_summary_of_what_was_given_up_promises_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said for ever that it would be tried again."""
    attempt = stage.attempt(outputs=("*.csv",), closed=1.0)
    stage.file("a.csv")

    monkeypatch.setattr("penstock.results.filecopy.link_or_copy", staging.full)
    assert stage.collect(attempt)
    assert (stage.settings.state / "given-up" / attempt.name).exists()
    text = (stage.results / "17" / "job_summary.txt").read_text()
    assert text.startswith("INCOMPLETE, given up: No space left on device\n")
    assert stage.summary().given_up
