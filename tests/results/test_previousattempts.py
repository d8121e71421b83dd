"""Earlier attempts in the folder of the next one: complete, once, with everything their owner added."""

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
    """Run `deed` as the owner during the collection of the next attempt, after the last one was linked."""
    original = checksums.of_folder

    def of_folder(folder: Path) -> bytes:
        deed()
        return original(folder)

    monkeypatch.setattr(checksums, "of_folder", of_folder)


def texts(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def test_entries_added_during_collection_are_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, folders, links and pipes, at the top and deeper, of the last and earlier attempts."""
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


def test_files_changed_during_collection_are_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As editors write, by rename: both versions are kept, since either may be wanted."""
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


def test_storage_without_hard_links(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier attempts are copied; copies are recognised by content, so nothing is duplicated."""
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
    """They stay protected in their new place, and the old folder is removed."""
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


def test_old_folder_without_summary(tmp_path: Path) -> None:
    """Its owner removed it: everything else goes to the folder of the last attempt."""
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new, new / "attempt-0", new / "attempt-3"):
        folder.mkdir()
    (old / "notes").write_text("mine")
    previousattempts.clear(old, new)
    assert texts(tmp_path) == {"new/attempt-3/notes": "mine"}
    assert list(old.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_entry_named_like_checksums_is_kept(stage: Stage, kind: str) -> None:
    """An owner may put anything there."""
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
def test_write_protected_results_of_requeued_job(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `chmod -R a-w` of the job's folder no hidden folder is left over."""
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


def test_added_entries_survive_storage_error(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are moved at the next try, and no hidden folder is left over."""
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
