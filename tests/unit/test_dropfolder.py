"""The drop folder: marker, owners and modes, listing, renames whose answer is lost, inotify."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import errors, wellknown
from penstock.intake import filenames
from penstock.nas import dropfolder, events, listing, renames


def prepare(path: Path, known: str = "") -> str:
    return dropfolder.prepare(path, instance="one", known=known, readme="read me")


def open_and_close(path: Path, marker: str) -> None:
    with dropfolder.opened(path, instance="one", marker=marker):
        pass


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


class TestFolder:
    def test_first_use_creates_folders(self, tmp_path: Path) -> None:
        """With safe modes; the second use changes nothing."""
        marker = prepare(tmp_path)
        assert prepare(tmp_path, known=marker) == marker
        modes = {entry.name: entry.stat().st_mode & 0o7777 for entry in tmp_path.iterdir() if entry.is_dir()}
        assert modes == {"submit": 0o1777, "processed": 0o755, "failed": 0o755, ".work": 0o700}
        assert (tmp_path / wellknown.DROP_README).read_text() == "read me"

    def test_crash_during_creation_leaves_submit_open(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The next start leaves existing folders alone, so submit/ needs its mode at once."""

        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        before = os.umask(0o022)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(os, "chmod", killed)
                with pytest.raises(KeyboardInterrupt):
                    prepare(tmp_path)
            prepare(tmp_path)
            assert os.umask(0o022) == 0o022
        finally:
            os.umask(before)
        assert (tmp_path / "submit").stat().st_mode & 0o7777 == 0o1777

    def test_mount_point_without_nas_is_refused(self, tmp_path: Path) -> None:
        """Nothing is created there."""
        marker = prepare(tmp_path)
        empty = tmp_path / "empty"
        empty.mkdir()
        with pytest.raises(errors.NasUnavailable, match="marker is missing"):
            prepare(empty, known=marker)
        with pytest.raises(errors.NasUnavailable, match="marker is missing"):
            open_and_close(empty, marker)
        assert list(empty.iterdir()) == []

    def test_missing_folder_is_not_created(self, tmp_path: Path) -> None:
        """It would be on the wrong disk."""
        with pytest.raises(errors.NasUnavailable, match="cannot open"):
            prepare(tmp_path / "slurm-jobs")

    def test_other_nas_is_refused(self, tmp_path: Path) -> None:
        """Its marker differs."""
        prepare(tmp_path)
        with pytest.raises(errors.NasUnavailable, match="another NAS"):
            prepare(tmp_path, known="f" * 32)

    @pytest.mark.parametrize(
        ("name", "mode"), [("", 0o777), ("processed", 0o775), ("failed", 0o777), ("submit", 0o777)]
    )
    def test_unsafe_modes_are_refused(self, tmp_path: Path, name: str, mode: int) -> None:
        """Who may write a directory may replace what is in it."""
        marker = prepare(tmp_path)
        (tmp_path / name).chmod(mode)
        with pytest.raises(errors.NasUnavailable, match="must belong to root"):
            open_and_close(tmp_path, marker)

    def test_nothing_is_created_in_unsafe_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Who may write the folder can replace a new directory of root by a link."""
        secret, folder, real = tmp_path / "secret", tmp_path / "folder", os.mkdir
        secret.mkdir(mode=0o700)
        folder.mkdir()
        folder.chmod(0o777)

        def swapped(name: str, mode: int, *, dir_fd: int) -> None:
            real(name, mode, dir_fd=dir_fd)
            os.rmdir(name, dir_fd=dir_fd)
            os.symlink(secret, name, dir_fd=dir_fd)

        monkeypatch.setattr(os, "mkdir", swapped)
        with pytest.raises(errors.NasUnavailable, match="writable by nobody else"):
            prepare(folder)
        assert secret.stat().st_mode & 0o7777 == 0o700
        assert list(folder.iterdir()) == []

    def test_link_instead_of_folder_is_refused(self, tmp_path: Path) -> None:
        """Links are never followed."""
        marker = prepare(tmp_path)
        (tmp_path / "failed").rename(tmp_path / "elsewhere")
        (tmp_path / "failed").symlink_to("elsewhere")
        with pytest.raises(errors.NasUnavailable, match="failed"):
            open_and_close(tmp_path, marker)

    def test_no_descriptor_stays_open(self, tmp_path: Path) -> None:
        """The NAS can be unmounted between two passes."""
        marker = prepare(tmp_path)
        before = len(list(Path("/proc/self/fd").iterdir()))
        with dropfolder.opened(tmp_path, instance="one", marker=marker) as folder:
            listing.take(folder, hidden=filenames.is_hidden, user_folders=True)
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def test_user_folders_are_listed_if_wanted(self, tmp_path: Path) -> None:
        """Links to folders are not folders; of hidden files only the stamps are listed."""
        marker = prepare(tmp_path)
        own = tmp_path / "submit" / "alice"
        own.mkdir()
        (own / "a.sh").write_text("x")
        (own / ".b.sh").write_text("x")
        (tmp_path / "submit" / "link").symlink_to("alice")
        with dropfolder.opened(tmp_path, instance="one", marker=marker) as folder:
            found = listing.take(folder, hidden=filenames.is_hidden, user_folders=True)
            without = listing.take(folder, hidden=filenames.is_hidden, user_folders=False)
        assert {(one.folder, one.name, one.regular) for one in found.files} == {
            ("alice", "a.sh", True),
            ("", "link", False),
        }
        assert [one.name for one in without.files] == ["link"]
        assert found.hidden == {listing.Stamp.of((own / ".b.sh").stat())}


class TestMoving:
    def test_rename_with_lost_reply_succeeds(
        self, tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The server replies ENOENT to the repeated request."""
        (tmp_path / "a").write_text("x")
        inode = (tmp_path / "a").stat().st_ino
        real = os.rename

        def rename_and_lose(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
            real(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")

        monkeypatch.setattr(os, "rename", rename_and_lose)
        assert renames.move(renames.Spot(directory, "a"), renames.Spot(directory, "b"), inode=inode)
        assert (tmp_path / "b").read_text() == "x"

    def test_failed_rename_is_raised(
        self, tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another file at the target does not count."""
        (tmp_path / "a").write_text("x")
        (tmp_path / "b").write_text("other")

        def full(*words: str, **places: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "rename", full)
        with pytest.raises(OSError, match="No space"):
            renames.move(renames.Spot(directory, "a"), renames.Spot(directory, "b"), inode=1)
        assert (tmp_path / "b").read_text() == "other"

    def test_missing_source_is_reported(self, directory: int) -> None:
        """The file was deleted meanwhile."""
        assert not renames.move(renames.Spot(directory, "a"), renames.Spot(directory, "b"))


class TestEvents:
    def test_renames_into_directory_are_reported(self, tmp_path: Path) -> None:
        """Files written in place are not."""
        watch = events.watch(tmp_path)
        assert watch is not None
        try:
            (tmp_path / "written").write_text("x")
            (tmp_path / ".aside").write_text("x")
            (tmp_path / ".aside").rename(tmp_path / "moved")
            assert watch.moved() == {"moved"}
            assert watch.moved() == frozenset()
        finally:
            watch.close()

    def test_missing_directory_is_not_watched(self, tmp_path: Path) -> None:
        """Polling works without."""
        assert events.watch(tmp_path / "missing") is None
