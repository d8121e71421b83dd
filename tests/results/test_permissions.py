"""What users may not do in the results folder, and a results folder that is not safe."""

from __future__ import annotations

import os

import pytest

from penstock import errors
from penstock.nas import asuser
from penstock.results import resultsroot
from tests.results import stage as staging
from tests.results.stage import OTHER, Stage

as_root = pytest.mark.skipif(not staging.IS_ROOT, reason="only root can become another user")


@as_root
@pytest.mark.parametrize("name", ["17", "18", ".17-0-00000000.partial", ".outputs/x", ".penstock-results"])
def test_users_cannot_create_entries_in_results(stage: Stage, name: str) -> None:
    """No folder, link or rename, except in the folder of output folders."""
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
def test_output_folders_of_others_are_protected(stage: Stage) -> None:
    """Their parent can be written and entered, but not listed; each has one owner."""
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
def test_unreadable_files_are_not_collected(stage: Stage) -> None:
    """A job that names another user's file as its output gets nothing of it."""
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
    assert "link.csv: symbolic link, not followed" in notes


@as_root
def test_output_folder_of_other_user_is_not_moved(stage: Stage) -> None:
    """The results are then incomplete."""
    resultsroot.prepare(stage.results, stage.settings.state)
    attempt = stage.attempt()
    folder = stage.output_folder(attempt, theirs="theirs")
    stage.own(folder, OTHER)
    assert not stage.collect(attempt)
    assert (folder / "theirs").exists()
    assert not stage.summary().complete


def test_unmounted_results_are_refused(stage: Stage) -> None:
    """Nothing is written to an empty mount point."""
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
def test_writable_results_folder_is_refused(stage: Stage, mode: int) -> None:
    """The hint says what to do."""
    stage.results.chmod(mode)
    with pytest.raises(errors.NasUnavailable) as caught:
        stage.collect(stage.attempt())
    assert "chmod 755" in caught.value.hint
