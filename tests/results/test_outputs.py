"""outputs/: what is collected, how name conflicts are solved, and what is left alone."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from penstock import wellknown
from penstock.model import attempts
from penstock.nas import asuser
from penstock.results import outputs, resultsroot, settings
from tests.results import stage as staging
from tests.results.stage import Stage


def tree(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def finder(stage: Stage, **limits: int) -> outputs.Finder:
    target = stage.base / "target"
    target.mkdir(exist_ok=True)
    return outputs.Finder(stage.home, target, settings.Limits(**limits), outputs.Notes(), stage.results)


def test_folder_is_collected_with_notes(stage: Stage) -> None:
    """Links and pipes get a note; everything else is collected."""
    stage.file("data/sub/x", "1")
    (stage.home / "data" / "link").symlink_to("/etc/passwd")
    os.mkfifo(stage.home / "data" / "pipe")
    found = finder(stage)
    found.collect("data")
    assert (found.target / "data" / "sub" / "x").read_text() == "1"
    assert sorted(path.name for path in (found.target / "data").iterdir()) == ["sub"]
    assert found.notes.lines == ["data/link: symbolic link, not followed", "data/pipe: not a regular file"]


def test_limits(stage: Stage) -> None:
    """By number and by size."""
    for number in range(5):
        stage.file(f"{number}.csv", "x" * 10)
    few = finder(stage, output_files=2)
    few.collect("*.csv")
    assert (few.files, few.left_out) == (2, 3)
    small = finder(stage, output_bytes=35)
    small.collect("*.csv")
    assert (small.files, small.left_out) == (3, 2)


def test_file_matched_twice_counts_once(stage: Stage) -> None:
    """`**` matches a file, its folder and the folder above."""
    for number in range(3):
        stage.file(f"d/e/{number}.csv")
    found = finder(stage, output_files=3)
    for pattern in ("**", "d/e/*.csv"):
        found.collect(pattern)
    assert (found.files, found.left_out) == (3, 0)


def test_large_files_are_linked_and_small_ones_copied(stage: Stage) -> None:
    """The original stays."""
    stage.file("large", "x" * 100)
    stage.file("small", "x" * 99)
    found = finder(stage, link_bytes=100)
    found.collect("large")
    found.collect("small")
    assert (found.target / "large").stat().st_ino == (stage.home / "large").stat().st_ino
    assert (found.target / "small").stat().st_ino != (stage.home / "small").stat().st_ino


def test_name_conflict_adds_a_number(stage: Stage) -> None:
    """With a file of the job's output folder; a second run adds nothing."""
    stage.file("a.csv", "from the working directory")
    found = finder(stage)
    (found.target / "a.csv").write_text("from the output folder")
    for _ in range(2):
        found.collect("a.csv")
    assert sorted(path.name for path in found.target.iterdir()) == ["a.csv", "a.csv.2"]
    assert (found.target / "a.csv").read_text() == "from the output folder"
    assert (found.target / "a.csv.2").read_text() == "from the working directory"
    assert "a.csv: this name was taken; saved as a.csv.2" in found.notes.lines


def test_files_of_same_name_size_and_time_are_both_kept(stage: Stage) -> None:
    """Only equal content makes them one: a score of 0.17 is not one of 0.91."""
    attempt = stage.attempt(outputs=("score.txt", "same.txt"))
    folder = stage.output_folder(attempt, **{"score.txt": "0.91\n", "same.txt": "0.5\n"})
    for path in (
        folder / "score.txt",
        folder / "same.txt",
        stage.file("score.txt", "0.17\n"),
        stage.file("same.txt", "0.5\n"),
    ):
        os.utime(path, (1000, 1000))
    assert stage.collect(attempt)
    found = {path.name: path.read_text() for path in (stage.results / "17" / "outputs").iterdir()}
    assert found == {"score.txt": "0.91\n", "score.txt.2": "0.17\n", "same.txt": "0.5\n"}
    assert stage.summary().notes == ("score.txt: this name was taken; saved as score.txt.2",)
    assert stage.summary().outputs.files == 3


@pytest.mark.skipif(not staging.IS_ROOT, reason="root reads everything, so the test becomes another user")
def test_unreadable_file_of_same_name_is_kept(stage: Stage) -> None:
    """Mode 000 in the output folder: the other file gets a number."""
    attempt = stage.attempt(outputs=("a.csv",))
    folder = stage.output_folder(attempt, **{"a.csv": "1"})
    for path in (folder / "a.csv", stage.file("a.csv", "2")):
        os.utime(path, (1000, 1000))
    (folder / "a.csv").chmod(0)
    assert stage.collect(attempt)
    outcome = stage.results / "17" / "outputs"
    assert [(outcome / name).read_text() for name in ("a.csv", "a.csv.2")] == ["1", "2"]


def test_file_in_place_of_folder(stage: Stage) -> None:
    """The file that cannot be collected gets a note, all others are collected."""
    attempt = stage.attempt(outputs=("data/*.csv", "b.csv"))
    stage.output_folder(attempt, data="a file")
    stage.file("data/a.csv")
    stage.file("b.csv")
    assert stage.collect(attempt)
    folder = stage.results / "17" / "outputs"
    assert sorted(path.name for path in folder.iterdir()) == ["b.csv", "data"]
    assert (folder / "data").read_text() == "a file"
    assert stage.summary().notes == ("data/a.csv: File exists",)
    assert (stage.home / "data" / "a.csv").exists()


@pytest.mark.parametrize("pattern", ["results", "**", "**/x", "results/*", "results/1/x", "*/1", "re*/**/x"])
def test_results_are_not_collected_into_themselves(stage: Stage, pattern: str) -> None:
    """With a working directory above the results folder every job would collect all earlier results."""
    found = outputs.Finder(stage.base, stage.base / "t", settings.Limits(), outputs.Notes(), stage.results)
    (stage.results / "1").mkdir()
    tree(stage.results, "1/x")
    found.collect(pattern)
    assert not (stage.base / "t" / "results").exists()
    (note,) = found.notes.lines
    assert note.endswith(": in the results folder, not collected")


def test_working_directory_in_results_folder(stage: Stage) -> None:
    """A job may work in the results of another job."""
    place = stage.results / "16"
    place.mkdir()
    tree(place, "x")
    found = outputs.Finder(place, stage.base / "t", settings.Limits(), outputs.Notes(), stage.results)
    found.collect("x")
    assert (stage.base / "t" / "x").exists()


def test_names_that_are_not_utf8(stage: Stage) -> None:
    """Copied as bytes; notes can be written as JSON."""
    name = os.fsdecode(b"\xff.csv")
    stage.file(name)
    (stage.home / os.fsdecode(b"\xfe.csv")).symlink_to("x")
    found = finder(stage)
    found.collect("*.csv")
    assert (found.target / name).exists()
    assert found.notes.lines == ["\N{REPLACEMENT CHARACTER}.csv: symbolic link, not followed"]


def test_notes_are_limited() -> None:
    """A job with a million links does not get a million notes."""
    notes = outputs.Notes()
    for number in range(100):
        notes.add(str(number))
    assert len(notes.all()) == outputs.MOST_NOTES + 1
    assert notes.all()[-1] == "and 80 more notes on single files"


@pytest.mark.skipif(not staging.IS_ROOT, reason="root reads everything, so the test becomes another user")
def test_unreadable_outputs_are_made_readable(stage: Stage) -> None:
    """Mode 000 is a mistake: the owner gets read permission, and the file a checksum."""
    attempt = stage.attempt()
    folder = stage.output_folder(attempt, closed="secret")
    (folder / "closed").chmod(0)
    (folder / "shut").mkdir()
    (folder / "shut" / "in").write_text("x")
    for path in (folder / "shut" / "in", folder / "shut"):
        stage.own(path)
        path.chmod(0)
    assert stage.collect(attempt)
    assert staging.sha256sum(stage.results / "17") == ""
    assert staging.uncovered(stage.results / "17") == set()


def protected(stage: Stage, attempt: attempts.Attempt) -> Path:
    """An output folder after `chmod -R a-w`."""
    folder = stage.output_folder(attempt, model="precious")
    (folder / "sub").mkdir()
    (folder / "sub" / "in").write_text("x")
    for path in (folder / "sub" / "in", folder / "sub", folder / "model", folder):
        stage.own(path)
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222)
    return folder


def modes(folder: Path) -> dict[str, int]:
    return {name: stat.S_IMODE((folder / name).stat().st_mode) for name in (".", "sub", "model")}


@pytest.mark.skipif(not staging.IS_ROOT, reason="needs a user that is not root, and root to become it")
def test_protected_outputs_stay_protected(stage: Stage) -> None:
    """`chmod -R a-w "$PENSTOCK_OUTPUT_DIR"` as a script's last line, with patterns."""
    attempt = stage.attempt(outputs=("*.csv", "sub/*.csv", "sub/deep/*.csv"))
    for name in ("a.csv", "sub/b.csv", "sub/deep/c.csv"):
        stage.file(name)
    protected(stage, attempt)
    assert stage.collect(attempt)
    folder = stage.results / "17" / "outputs"
    assert (folder / "model").read_text() == "precious"
    assert [(folder / name).exists() for name in ("a.csv", "sub/b.csv", "sub/deep/c.csv")] == [True] * 3
    assert modes(folder) == {".": 0o555, "sub": 0o555, "model": 0o444}
    assert stage.summary().notes == ()
    assert staging.sha256sum(stage.results / "17") == ""


@pytest.mark.skipif(not staging.IS_ROOT, reason="needs a user that is not root, and root to become it")
def test_protected_outputs_are_merged(stage: Stage) -> None:
    """An earlier try created the folder; entries are moved into a protected one, too."""
    resultsroot.prepare(stage.results, stage.settings.state)
    attempt = stage.attempt()
    source, target = protected(stage, attempt), stage.base / "partial" / "outputs"
    target.mkdir(parents=True)
    (target / "model").write_text("other")
    for path in (target.parent, target):
        stage.own(path)
    target.chmod(0o555)
    asuser.run_as(
        staging.USER, lambda: outputs.take_folder(source, target, outputs.Notes()), type=bool, timeout=60
    )
    assert sorted(path.name for path in target.iterdir()) == ["model", "model.2", "sub"]
    assert modes(target) == {".": 0o555, "sub": 0o555, "model": 0o644}
    assert not source.exists()


@pytest.mark.skipif(not staging.IS_ROOT, reason="needs a user that is not root, and root to become it")
def test_protected_outputs_after_full_disk(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were moved and protected again before anything else failed."""
    attempt = stage.attempt(outputs=("*.csv",))
    stage.file("a.csv")
    protected(stage, attempt)

    with monkeypatch.context() as patch:
        patch.setattr("penstock.results.filecopy.link_or_copy", staging.full)
        assert not stage.collect(attempt)
    assert stage.collect(attempt)
    folder = stage.results / "17" / "outputs"
    assert sorted(path.name for path in folder.iterdir()) == ["a.csv", "model", "sub"]
    assert modes(folder) == {".": 0o555, "sub": 0o555, "model": 0o444}


@pytest.mark.skipif(not staging.IS_ROOT, reason="needs a user that is not root, and root to become it")
def test_output_folder_replaced_by_link_is_not_followed(stage: Stage) -> None:
    """Its target, a folder of the owner, stays private and is not collected."""
    attempt = stage.attempt(outputs=("b.csv",))
    stage.file("private/a.csv")
    stage.file("b.csv")
    (stage.home / "private").chmod(0o700)
    folder = stage.output_folder(attempt)
    folder.rmdir()
    folder.symlink_to(stage.home / "private")
    stage.own(folder)
    assert stage.collect(attempt)
    assert stat.S_IMODE((stage.home / "private").stat().st_mode) == 0o700
    assert [path.name for path in (stage.home / "private").iterdir()] == ["a.csv"]
    assert (stage.results / "17" / "outputs" / "b.csv").exists()
    assert stage.summary().outputs.files == 1
    assert [note for note in stage.summary().notes if "symbolic link, kept, without checksum" in note]
    assert staging.sha256sum(stage.results / "17") == ""


def test_link_instead_of_outputs_is_not_followed(tmp_path: Path) -> None:
    """Created between two tries: its target keeps its mode and its files."""
    private, target = tmp_path / "private", tmp_path / "outputs"
    private.mkdir(mode=0o700)
    (private / wellknown.OUTPUTS_COPIED).touch()
    target.symlink_to(private)
    assert not outputs.take_folder(tmp_path / "missing", target, outputs.Notes())
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert (private / wellknown.OUTPUTS_COPIED).exists()


def test_output_folder_replaced_by_file_is_collected(stage: Stage) -> None:
    """At the first try."""
    attempt = stage.attempt()
    stage.output_folder(attempt).rmdir()
    Path(attempt.output_dir).write_text("precious")
    stage.own(Path(attempt.output_dir))
    assert stage.collect(attempt)
    (found,) = (stage.results / "17" / "outputs").iterdir()
    assert found.read_text() == "precious"
    assert staging.uncovered(stage.results / "17") == set()


@pytest.mark.parametrize("name", [".checksums.txt.20260131", ".stdout.log.original"])
def test_outputs_named_like_temporary_files_are_kept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also when the collection is repeated."""
    attempt = stage.attempt(outputs=("a.csv",))
    stage.file("a.csv")
    stage.output_folder(attempt, **{name: "precious"})

    with monkeypatch.context() as patch:
        patch.setattr("penstock.results.filecopy.link_or_copy", staging.full)
        assert not stage.collect(attempt)
    assert stage.collect(attempt)
    assert (stage.results / "17" / "outputs" / name).read_text() == "precious"


def test_name_too_long_for_a_number(stage: Stage) -> None:
    """The file that cannot be collected gets a note, all others are collected."""
    name = "n" * 255
    attempt = stage.attempt(outputs=("n*", "z.csv"))
    stage.file(name, "from the working directory")
    stage.file("z.csv")
    stage.output_folder(attempt, **{name: "from the output folder"})
    assert stage.collect(attempt)
    folder = stage.results / "17" / "outputs"
    assert (folder / name).read_text() == "from the output folder"
    assert (folder / "z.csv").exists()
    assert f"{name}: File name too long" in stage.summary().notes


def test_name_refused_by_storage(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some accept only UTF-8."""
    attempt = stage.attempt(outputs=("*.csv",))
    stage.file(os.fsdecode(b"\xff.csv"))
    stage.file("z.csv")
    original = Path.replace

    def replace(path: Path, target: Path) -> Path:
        if os.fsencode(target).endswith(b"\xff.csv"):
            raise OSError(errno.EILSEQ, os.strerror(errno.EILSEQ))
        return original(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    assert stage.collect(attempt)
    assert [path.name for path in (stage.results / "17" / "outputs").iterdir()] == ["z.csv"]
    assert len(stage.summary().notes) == 1


@pytest.mark.skipif(not staging.IS_ROOT, reason="root reads everything, so the test becomes another user")
@pytest.mark.parametrize("mode", [0o000, 0o600])
def test_unreadable_folder(stage: Stage, mode: int) -> None:
    """It gets a note; all others are collected."""
    attempt = stage.attempt(outputs=("data",))
    for name in ("data/a/1", "data/b/2", "data/c"):
        stage.file(name)
    (stage.home / "data" / "a").chmod(mode)
    assert stage.collect(attempt)
    folder = stage.results / "17" / "outputs" / "data"
    assert sorted(path.name for path in folder.iterdir()) == ["b", "c"]
    (note,) = stage.summary().notes
    assert note in ("data/a: Permission denied", "data/a/1: Permission denied")
