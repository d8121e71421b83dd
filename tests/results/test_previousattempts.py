"""Earlier attempts in the folder of the next one: whole, once, and with all that their owner put there."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.results import checksums, filecopy, previousattempts
from tests.results import stage as staging
from tests.results.stage import Stage


def meanwhile(monkeypatch: pytest.MonkeyPatch, deed: Callable[[], object]) -> None:
    """Let the owner do something while the next attempt is being collected, after the last was linked."""
    original = checksums.of_folder

    def of_folder(folder: Path) -> bytes:
        deed()
        return original(folder)

    monkeypatch.setattr(checksums, "of_folder", of_folder)


def texts(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def test_what_the_owner_adds_meanwhile_is_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, folders, links and pipes, at the top and further down, in the last attempt and earlier ones."""
    for restart in (0, 1):
        attempt = stage.attempt(restart=restart)
        stage.output_folder(attempt, model=f"model {restart}")
        assert stage.collect(attempt)
    folder = stage.results / "17"

    def add() -> None:
        (folder / "notes").write_text("hours of work")
        (folder / "outputs" / "plots" / "a").mkdir(parents=True)
        (folder / "outputs" / "plots" / "a" / "b").write_text("plot")
        (folder / "attempt-0" / "outputs" / "more").write_text("more")
        (folder / "link").symlink_to("notes")
        os.mkfifo(folder / "pipe")

    meanwhile(monkeypatch, add)
    assert stage.collect(stage.attempt(restart=2))
    assert stage.names() == ["17"]
    found = texts(folder)
    assert found["attempt-1/notes"] == "hours of work"
    assert found["attempt-1/outputs/plots/a/b"] == "plot"
    assert found["attempt-0/outputs/more"] == "more"
    assert (found["attempt-0/outputs/model"], found["attempt-1/outputs/model"]) == ("model 0", "model 1")
    assert (folder / "attempt-1" / "link").readlink() == Path("notes")
    assert stat.S_ISFIFO((folder / "attempt-1" / "pipe").lstat().st_mode)
    assert not [name for name in found if name.endswith(".2")]
    assert [staging.sha256sum(folder / name) for name in (".", "attempt-0", "attempt-1")] == ["", "", ""]


def test_what_the_owner_changes_meanwhile_is_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As editors write, under a new name first: both versions are there, for nobody knows which is wanted."""
    assert stage.collect(stage.attempt())
    folder = stage.results / "17"
    stage.own(folder / "stdout.log").with_name("notes").write_text("first")
    stage.own(folder / "notes")

    def change() -> None:
        (folder / "notes~").write_text("second")
        (folder / "notes~").rename(folder / "notes")

    meanwhile(monkeypatch, change)
    assert stage.collect(stage.attempt(restart=1))
    found = texts(folder)
    assert (found["attempt-0/notes"], found["attempt-0/notes.2"]) == ("first", "second")
    assert stage.names() == ["17"]


def test_storage_without_links(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """There earlier attempts are copied; copies are known by their content, and nothing is there twice."""
    monkeypatch.setattr(filecopy, "_linked", lambda source, target: False)
    for restart in range(3):
        attempt = stage.attempt(restart=restart)
        stage.output_folder(attempt, model=f"model {restart}")
        assert stage.collect(attempt)
    found = texts(stage.results / "17")
    assert (found["attempt-0/outputs/model"], found["attempt-1/outputs/model"]) == ("model 0", "model 1")
    assert not [name for name in found if name.endswith(".2")]
    assert stage.names() == ["17"]


@pytest.mark.skipif(not staging.IS_ROOT, reason="needs a user that is not root, and root to become it")
def test_protected_outputs_of_earlier_attempts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay protected in their new place, and nothing of the old one is left over."""
    for restart in range(3):
        attempt = stage.attempt(restart=restart)
        folder = stage.output_folder(attempt, model=f"model {restart}")
        (folder / "sub").mkdir()
        stage.own(folder / "sub")
        for path in (folder / "sub", folder):
            path.chmod(0o555)
        assert stage.collect(attempt)
        assert stage.names() == ["17"]
    for place in ("attempt-0", "attempt-1", "."):
        for name in ("outputs", "outputs/sub"):
            path = stage.results / "17" / place / name
            assert stat.S_IMODE(path.stat().st_mode) == 0o555
    assert texts(stage.results / "17" / "attempt-0")["outputs/model"] == "model 0"


def test_old_folder_without_a_summary(tmp_path: Path) -> None:
    """Its owner has removed it meanwhile: what else is there goes where the last attempt is."""
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new, new / "attempt-0", new / "attempt-3"):
        folder.mkdir()
    (old / "notes").write_text("mine")
    previousattempts.clear(old, new)
    assert texts(tmp_path) == {"new/attempt-3/notes": "mine"}
    assert list(old.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_what_only_has_the_name_of_the_checksums(stage: Stage, kind: str) -> None:
    """An owner may put anything there: it is kept as what it is."""
    assert stage.collect(stage.attempt())
    path = stage.results / "17" / "checksums.txt"
    path.unlink()
    if kind == "link":
        path.symlink_to("/etc/passwd")
    else:
        path.mkdir()
        stage.own(path)
    assert stage.collect(stage.attempt(restart=1))
    kept = stage.results / "17" / "attempt-0" / "checksums.txt"
    assert kept.is_symlink() if kind == "link" else kept.is_dir()
    assert stage.names() == ["17"]


@pytest.mark.skipif(not staging.IS_ROOT, reason="needs a user that is not root, and root to become it")
def test_results_that_their_owner_protected(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """`chmod -R a-w` of a job's whole folder, which is then sent back: nothing is left over under a hidden
    name.
    """
    assert stage.collect(stage.attempt())
    folder = stage.results / "17"
    stage.own(folder).chmod(0o555)

    def add() -> None:
        folder.chmod(0o755)
        (folder / "notes").write_text("hours of work")
        folder.chmod(0o555)

    meanwhile(monkeypatch, add)
    assert stage.collect(stage.attempt(restart=1))
    assert stage.names() == ["17"]
    assert texts(folder)["attempt-0/notes"] == "hours of work"


def test_what_the_owner_added_is_kept_when_the_storage_fails_for_a_moment(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is moved at the next try, not left under a hidden name for ever."""
    assert stage.collect(stage.attempt())
    folder, second = stage.results / "17", stage.attempt(restart=1)
    with monkeypatch.context() as patch:
        meanwhile(patch, lambda: (folder / "notes").write_text("hours of work"))

        def move(source: Path, target: Path) -> None:
            raise OSError(5, "Input/output error")

        patch.setattr(previousattempts, "_move_tree", move)
        assert not stage.collect(second)
    assert stage.collect(second)
    assert stage.names() == ["17"]
    assert texts(folder)["attempt-0/notes"] == "hours of work"
