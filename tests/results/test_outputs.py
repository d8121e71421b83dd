"""outputs/: which files patterns mean, how they get there, and what is left alone."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from penstock import wellknown
from penstock.model import attempts
from penstock.nas import asuser
from penstock.results import filecopy, globs, outputs, resultsroot, settings
from tests.results import stage as staging
from tests.results.stage import Stage


def tree(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.csv", {"a.csv", "b c.csv"}),
        ("./*.csv", {"a.csv", "b c.csv"}),
        ("d/*.csv", {"d/a.csv"}),
        ("d//a.csv", {"d/a.csv"}),
        ("*/a.csv", {"d/a.csv", "l/a.csv"}),
        ("**/a.csv", {"a.csv", "d/a.csv", "d/e/a.csv"}),
        ("d/**", {"d/a.csv", "d/e", "d/e/a.csv"}),
        ("?.csv", {"a.csv"}),
        ("[ab]*.csv", {"a.csv", "b c.csv"}),
        ("[!a]*.csv", {"b c.csv"}),
        (".h*", {".hidden.csv"}),
        ("d", {"d"}),
        ("nothing", set()),
        ("../*", set()),
        ("d/../a.csv", set()),
        ("", set()),
        ("[", {"["}),
        ("a.csv/x", set()),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, found: set[str]) -> None:
    """As a shell has them, and `**`, which follows no links."""
    tree(tmp_path, "a.csv", "b c.csv", ".hidden.csv", "d/a.csv", "d/e/a.csv", "[")
    (tmp_path / "l").symlink_to("d")
    assert set(globs.matches(str(tmp_path), pattern)) == found


PARTS = strategies.sampled_from(["*", "**", "a", "b", "?", "[ab]", "a*", ".*", ".", "**/**"])


@hypothesis.settings(max_examples=150, deadline=None, derandomize=True)
@hypothesis.given(
    strategies.lists(PARTS, min_size=1, max_size=4),
    strategies.sets(
        strategies.sampled_from(["a", "b", "ab", "c/a", "c/b/a", "a2/b", ".x", ".y/a", "c/.z"]), max_size=6
    ),
)
def test_patterns_mean_what_python_takes_them_for(parts: list[str], names: set[str]) -> None:
    """Among plain names without links every pattern finds what `pathlib` finds, hidden names aside."""
    pattern = "/".join(parts)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for name in names:
            if not (root / name).exists():
                tree(root, name)
        found = set(globs.matches(place, pattern))
        assert all((root / name).exists() for name in found)
        if any(part.startswith(".") for part in parts):
            return
        if parts[-1].endswith("**"):
            pattern += "/*"
        expected = {str(path.relative_to(root)) for path in root.glob(pattern)}
        assert found == {
            name for name in expected if not any(part.startswith(".") for part in name.split("/"))
        }


def test_rings_of_links_end(tmp_path: Path) -> None:
    """`**` does not walk them at all."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "again").symlink_to("..")
    tree(tmp_path, "a/x")
    assert set(globs.matches(str(tmp_path), "**/x")) == {"a/x"}


def finder(stage: Stage, **limits: int) -> outputs.Finder:
    target = stage.base / "target"
    target.mkdir(exist_ok=True)
    return outputs.Finder(stage.home, target, settings.Limits(**limits), outputs.Notes(), stage.results)


def test_folders_are_collected_whole_and_oddities_named(stage: Stage) -> None:
    """Links, pipes and unreadable files are said and left; everything else is there."""
    stage.file("data/sub/x", "1")
    (stage.home / "data" / "link").symlink_to("/etc/passwd")
    os.mkfifo(stage.home / "data" / "pipe")
    found = finder(stage)
    found.collect("data")
    assert (found.target / "data" / "sub" / "x").read_text() == "1"
    assert sorted(path.name for path in (found.target / "data").iterdir()) == ["sub"]
    assert found.notes.lines == ["data/link: a link, not followed", "data/pipe: no regular file"]


def test_limits_are_kept_and_said(stage: Stage) -> None:
    """By number and by size."""
    for number in range(5):
        stage.file(f"{number}.csv", "x" * 10)
    few = finder(stage, output_files=2)
    few.collect("*.csv")
    assert (few.files, few.left_out) == (2, 3)
    small = finder(stage, output_bytes=35)
    small.collect("*.csv")
    assert (small.files, small.left_out) == (3, 2)


def test_file_that_is_named_often_counts_once(stage: Stage) -> None:
    """`**` means a file, its folder and the folder above: it is read once, and once within the limits."""
    for number in range(3):
        stage.file(f"d/e/{number}.csv")
    found = finder(stage, output_files=3)
    for pattern in ("**", "d/e/*.csv"):
        found.collect(pattern)
    assert (found.files, found.left_out) == (3, 0)


def test_large_files_are_linked_and_small_ones_copied(stage: Stage) -> None:
    """Unless the file system can clone; either way the original stays."""
    stage.file("large", "x" * 100)
    stage.file("small", "x" * 99)
    found = finder(stage, link_bytes=100)
    found.collect("large")
    found.collect("small")
    assert (found.target / "large").stat().st_ino == (stage.home / "large").stat().st_ino
    assert (found.target / "small").stat().st_ino != (stage.home / "small").stat().st_ino


def test_two_files_of_one_name(stage: Stage) -> None:
    """The job's own output folder has the name; the other stands beside it, and a second run adds nothing."""
    stage.file("a.csv", "from the working directory")
    found = finder(stage)
    (found.target / "a.csv").write_text("from the output folder")
    for _ in range(2):
        found.collect("a.csv")
    assert sorted(path.name for path in found.target.iterdir()) == ["a.csv", "a.csv.2"]
    assert (found.target / "a.csv").read_text() == "from the output folder"
    assert (found.target / "a.csv.2").read_text() == "from the working directory"
    assert "a.csv: there were two of this name; one is a.csv.2" in found.notes.lines


def test_two_files_of_one_name_size_and_second(stage: Stage) -> None:
    """Only the same content makes them one: a score of 0.17 is not one of 0.91."""
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
    assert stage.summary().notes == ("score.txt: there were two of this name; one is score.txt.2",)
    assert stage.summary().outputs.files == 3


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("", "", True),
        ("x" * (3 << 20), "x" * (3 << 20), True),
        ("x" * (3 << 20), "x" * ((3 << 20) - 1) + "y", False),
        ("x", "xx", False),
    ],
)
def test_files_are_the_same_by_content(tmp_path: Path, ours: str, theirs: str, same: bool) -> None:
    """To the last byte, also of what takes several reads."""
    for name, content in (("a", ours), ("b", theirs)):
        (tmp_path / name).write_text(content)
        os.utime(tmp_path / name, (1000, 1000))
    assert filecopy.is_same(tmp_path / "a", tmp_path / "b") is same
    os.utime(tmp_path / "b", (1002, 1002))
    assert not filecopy.is_same(tmp_path / "a", tmp_path / "b")


@pytest.mark.skipif(not staging.IS_ROOT, reason="root reads everything, so the test becomes another user")
def test_file_of_the_same_name_that_cannot_be_compared(stage: Stage) -> None:
    """Mode 000 in the output folder: the other one stands beside it."""
    attempt = stage.attempt(outputs=("a.csv",))
    folder = stage.output_folder(attempt, **{"a.csv": "1"})
    for path in (folder / "a.csv", stage.file("a.csv", "2")):
        os.utime(path, (1000, 1000))
    (folder / "a.csv").chmod(0)
    assert stage.collect(attempt)
    outcome = stage.results / "17" / "outputs"
    assert [(outcome / name).read_text() for name in ("a.csv", "a.csv.2")] == ["1", "2"]


def test_file_where_a_pattern_needs_a_folder(stage: Stage) -> None:
    """It is said which one stays where it is, and everything else comes."""
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
    """A working directory above the results folder: else every job would bring all earlier ones along."""
    found = outputs.Finder(stage.base, stage.base / "t", settings.Limits(), outputs.Notes(), stage.results)
    (stage.results / "1").mkdir()
    tree(stage.results, "1/x")
    found.collect(pattern)
    assert not (stage.base / "t" / "results").exists()
    (note,) = found.notes.lines
    assert note.endswith(": in the results folder, from which nothing is collected")


def test_working_directory_in_a_results_folder(stage: Stage) -> None:
    """A job that goes on in the results of another: what it names there is what it means."""
    place = stage.results / "16"
    place.mkdir()
    tree(place, "x")
    found = outputs.Finder(place, stage.base / "t", settings.Limits(), outputs.Notes(), stage.results)
    found.collect("x")
    assert (stage.base / "t" / "x").exists()


def test_names_that_are_no_text(stage: Stage) -> None:
    """Bytes are copied, and what is said of them can be written as JSON."""
    name = os.fsdecode(b"\xff.csv")
    stage.file(name)
    (stage.home / os.fsdecode(b"\xfe.csv")).symlink_to("x")
    found = finder(stage)
    found.collect("*.csv")
    assert (found.target / name).exists()
    assert found.notes.lines == ["\N{REPLACEMENT CHARACTER}.csv: a link, not followed"]


def test_notes_stay_within_reason() -> None:
    """A job with a million links does not get a million lines."""
    notes = outputs.Notes()
    for number in range(100):
        notes.add(str(number))
    assert len(notes.all()) == outputs.MOST_NOTES + 1
    assert notes.all()[-1] == "and 80 more of these"


@pytest.mark.skipif(not staging.IS_ROOT, reason="root reads everything, so the test becomes another user")
def test_outputs_that_their_owner_cannot_read_are_opened(stage: Stage) -> None:
    """Mode 000 is a slip: the owner gets the right to read, and a checksum."""
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
def test_outputs_that_their_owner_protected_come_and_stay_protected(stage: Stage) -> None:
    """`chmod -R a-w "$PENSTOCK_OUTPUT_DIR"` as a script's last line; patterns find their place, too."""
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
def test_protected_outputs_join_those_that_are_there(stage: Stage) -> None:
    """An earlier try has made the folder: protected entries are moved, also into a protected one."""
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
def test_protected_outputs_come_after_a_full_disk(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were moved and closed again before anything else failed."""
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


def test_copy_takes_no_more_than_asked(tmp_path: Path) -> None:
    """And says how much it left."""
    (tmp_path / "log").write_text("0123456789")
    assert filecopy.copy(tmp_path / "log", tmp_path / "copy", at_most=4) == 6
    assert (tmp_path / "copy").read_text() == "0123"


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device"])
def test_what_is_no_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    """Nothing waits, nothing is followed."""
    path = tmp_path / "x"
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path = Path("/dev/zero")
    with pytest.raises(filecopy.NotAFile):
        filecopy.open_file(path)


def test_failed_copy_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a file is no file."""
    (tmp_path / "a").write_text("x")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        filecopy.copy(tmp_path / "a", tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.skipif(not staging.IS_ROOT, reason="needs a user that is not root, and root to become it")
def test_output_folder_that_the_script_made_a_link_is_not_followed(stage: Stage) -> None:
    """It leads to a folder of the owner's: that stays private, and does not count as collected."""
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
    assert [note for note in stage.summary().notes if "a link, kept as it is, without checksum" in note]
    assert staging.sha256sum(stage.results / "17") == ""


def test_link_in_the_place_of_the_outputs_is_not_followed(tmp_path: Path) -> None:
    """Somebody has put it there between two tries: where it leads keeps its mode and its marks."""
    private, target = tmp_path / "private", tmp_path / "outputs"
    private.mkdir(mode=0o700)
    (private / wellknown.OUTPUTS_COPIED).touch()
    target.symlink_to(private)
    assert not outputs.take_folder(tmp_path / "missing", target, outputs.Notes())
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert (private / wellknown.OUTPUTS_COPIED).exists()


def test_output_folder_that_the_script_made_a_file(stage: Stage) -> None:
    """It is collected, and not tried again for a week."""
    attempt = stage.attempt()
    stage.output_folder(attempt).rmdir()
    Path(attempt.output_dir).write_text("precious")
    stage.own(Path(attempt.output_dir))
    assert stage.collect(attempt)
    (found,) = (stage.results / "17" / "outputs").iterdir()
    assert found.read_text() == "precious"
    assert staging.uncovered(stage.results / "17") == set()


@pytest.mark.parametrize("name", [".checksums.txt.20260131", ".stdout.log.original"])
def test_outputs_that_only_look_like_ours_are_kept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also when something has to be tried again: nothing is removed that exists nowhere else."""
    attempt = stage.attempt(outputs=("a.csv",))
    stage.file("a.csv")
    stage.output_folder(attempt, **{name: "precious"})

    with monkeypatch.context() as patch:
        patch.setattr("penstock.results.filecopy.link_or_copy", staging.full)
        assert not stage.collect(attempt)
    assert stage.collect(attempt)
    assert (stage.results / "17" / "outputs" / name).read_text() == "precious"


def test_file_whose_name_finds_no_place_keeps_no_others_back(stage: Stage) -> None:
    """Two of one name that has no room for a number: one stays where it is, and it is said which."""
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


def test_name_that_the_storage_refuses_keeps_no_others_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some take names in UTF-8 only."""
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
def test_folder_that_cannot_be_read_keeps_no_others_back(stage: Stage, mode: int) -> None:
    """It is said which one; what comes after it is collected."""
    attempt = stage.attempt(outputs=("data",))
    for name in ("data/a/1", "data/b/2", "data/c"):
        stage.file(name)
    (stage.home / "data" / "a").chmod(mode)
    assert stage.collect(attempt)
    folder = stage.results / "17" / "outputs" / "data"
    assert sorted(path.name for path in folder.iterdir()) == ["b", "c"]
    (note,) = stage.summary().notes
    assert note in ("data/a: Permission denied", "data/a/1: Permission denied")
