"""Which files are refused and why: what an unprivileged user might try."""

from __future__ import annotations

import grp
import os
import pwd
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.intake import inspection
from penstock.nas import listing, renames

NOBODY = pwd.getpwnam("nobody")
LIMITS = inspection.Limits(largest_bytes=1000)
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A valid file of an ordinary user."""
    path = tmp_path / "job.sh"
    path.write_bytes(b"#!/bin/sh\n")
    path.chmod(0o644)
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    return path


def inspect(
    directory: int, name: str = "job.sh", *, shown: str = "job.sh", expected: listing.Stamp | None = None
) -> inspection.Found:
    return inspection.inspect(renames.Spot(directory, name), name=shown, limits=LIMITS, expected=expected)


def refusal(directory: int, name: str = "job.sh", *, shown: str = "job.sh", temporary: bool = False) -> str:
    found = inspect(directory, name, shown=shown)
    assert isinstance(found, inspection.Refusal)
    assert found.advice
    assert found.temporary == temporary
    return found.reason


def test_regular_file_is_read(script: Path, directory: int) -> None:
    """With its owner, content and mode."""
    found = inspect(directory)
    assert isinstance(found, inspection.Script)
    assert (found.data, found.user.name, found.mode) == (b"#!/bin/sh\n", "nobody", 0o644)


def test_symbolic_link_is_refused(script: Path, tmp_path: Path, directory: int) -> None:
    """Neither to secrets nor to harmless files; the answer shows nothing of the target."""
    secret = tmp_path / "secret"
    secret.write_text("root:$6$abc")
    (tmp_path / "link").symlink_to(secret)
    assert refusal(directory, "link") == "it is a symbolic link"


def test_special_files_are_not_opened(tmp_path: Path, directory: int) -> None:
    """A pipe would block forever, and opening a device can have any effect."""
    os.mkfifo(tmp_path / "pipe")
    os.mknod(tmp_path / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "socket"))
    assert refusal(directory, "pipe") == "it is a named pipe"
    assert refusal(directory, "device") == "it is a device"
    assert refusal(directory, "folder") == "it is a folder"
    assert refusal(directory, "socket") == "it is a socket"


def test_hard_link_is_refused(script: Path, tmp_path: Path, directory: int) -> None:
    """Otherwise one user could submit another's file."""
    os.link(script, tmp_path / "other")
    assert "hard link" in refusal(directory)


def test_file_of_root_is_refused(script: Path, directory: int) -> None:
    """Nobody becomes root through a copy made by root."""
    os.chown(script, 0, 0)
    assert "belongs to root" in refusal(directory)


def test_file_writable_by_others_is_refused(script: Path, directory: int) -> None:
    """Otherwise their commands would run as the owner."""
    script.chmod(0o646)
    assert "everybody may write" in refusal(directory)
    script.chmod(0o664)
    os.chown(script, NOBODY.pw_uid, pwd.getpwnam("games").pw_gid)
    assert "group may write" in refusal(directory)


def test_group_writable_file_is_accepted_if_site_allows(script: Path, directory: int) -> None:
    """Some sites set the group on all files of shared folders."""
    script.chmod(0o664)
    os.chown(script, NOBODY.pw_uid, pwd.getpwnam("games").pw_gid)
    trusting = inspection.Limits(largest_bytes=1000, group_writable=True)
    found = inspection.inspect(
        renames.Spot(directory, "job.sh"), name="job.sh", limits=trusting, expected=None
    )
    assert isinstance(found, inspection.Script)


def test_file_writable_by_private_group_is_accepted(script: Path, directory: int) -> None:
    """Many systems create a private group for each user, with files writable by it."""
    games = pwd.getpwnam("games")
    script.chmod(0o664)
    os.chown(script, games.pw_uid, games.pw_gid)
    assert isinstance(inspect(directory), inspection.Script)


def test_oversized_file_is_not_read(script: Path, directory: int) -> None:
    """Refused by its size."""
    with script.open("r+b") as stream:
        stream.truncate(2**30)
    assert "1024.0 MiB" in refusal(directory)


def test_unknown_owner_is_refused_as_temporary(script: Path, directory: int) -> None:
    """The name service may be unavailable."""
    os.chown(script, 4242424, 4242424)
    assert "4242424" in refusal(directory, temporary=True)


def test_unknown_group_is_refused_as_temporary(
    script: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the user's private group."""
    games = pwd.getpwnam("games")
    script.chmod(0o664)
    os.chown(script, games.pw_uid, games.pw_gid)

    def away(gid: int) -> grp.struct_group:
        raise KeyError(gid)

    monkeypatch.setattr(grp, "getgrgid", away)
    assert "group may write" in refusal(directory, temporary=True)


def test_invalid_name_is_refused(script: Path, directory: int) -> None:
    """With a reason about the name."""
    assert "control character" in refusal(directory, shown="a\nb")


def test_file_changed_since_it_settled_is_unsettled(script: Path, directory: int) -> None:
    """Replaced or written after the last pass."""
    before = listing.Stamp.of(script.stat())
    assert isinstance(inspect(directory, expected=before), inspection.Script)
    script.write_bytes(b"#!/bin/sh\necho more\n")
    found = inspect(directory, expected=before)
    assert isinstance(found, inspection.Unsettled)
    assert found.stamp == listing.Stamp.of(script.stat())


def test_file_changed_while_read_is_unsettled(
    script: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Submitted content existed as a whole at one moment."""
    real = os.read

    def read_and_write(descriptor: int, most: int) -> bytes:
        data = real(descriptor, most)
        with script.open("ab") as stream:
            stream.write(b"more")
        return data

    monkeypatch.setattr(os, "read", read_and_write)
    assert isinstance(inspect(directory), inspection.Unsettled)


def test_missing_file_is_no_error(directory: int) -> None:
    """Its owner has removed it."""
    assert inspect(directory, "missing") is None
