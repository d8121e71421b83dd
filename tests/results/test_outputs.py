"""outputs/: which files patterns mean, how they get there, and what is left alone."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from penstock.results import copying, globbing, outputs, settings
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
    assert set(globbing.matches(str(tmp_path), pattern)) == found


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
        found = set(globbing.matches(place, pattern))
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
    assert set(globbing.matches(str(tmp_path), "**/x")) == {"a/x"}


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


def test_results_are_not_collected_into_themselves(stage: Stage) -> None:
    """A working directory above the results folder."""
    found = outputs.Finder(stage.base, stage.base / "t", settings.Limits(), outputs.Notes(), stage.results)
    (stage.results / "1").mkdir()
    tree(stage.results, "1/x")
    found.collect("results")
    assert not (stage.base / "t").exists()


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


def test_copy_takes_no_more_than_asked(tmp_path: Path) -> None:
    """And says how much it left."""
    (tmp_path / "log").write_text("0123456789")
    assert copying.copy(tmp_path / "log", tmp_path / "copy", at_most=4) == 6
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
    with pytest.raises(copying.NotAFile):
        copying.open_file(path)


def test_failed_copy_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a file is no file."""
    (tmp_path / "a").write_text("x")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        copying.copy(tmp_path / "a", tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
