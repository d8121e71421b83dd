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
    """A file that is fine, owned by an ordinary user."""
    path = tmp_path / "job.sh"
    path.write_bytes(b"#!/bin/sh\n")
    path.chmod(0o644)
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    return path


def inspect(
    directory: int, name: str = "job.sh", *, shown: str = "job.sh", expected: listing.Sign | None = None
) -> inspection.Found:
    return inspection.inspect(renames.Spot(directory, name), name=shown, limits=LIMITS, expected=expected)


def refusal(directory: int, name: str = "job.sh", *, shown: str = "job.sh", passing: bool = False) -> str:
    found = inspect(directory, name, shown=shown)
    assert isinstance(found, inspection.Refusal)
    assert found.advice
    assert found.passing == passing
    return found.reason


def test_a_plain_file_of_a_users_is_read_whole(script: Path, directory: int) -> None:
    """Owner from the file itself, content as it is."""
    found = inspect(directory)
    assert isinstance(found, inspection.Script)
    assert (found.data, found.user.name, found.mode) == (b"#!/bin/sh\n", "nobody", 0o644)


def test_links_are_not_followed(script: Path, tmp_path: Path, directory: int) -> None:
    """Neither to secrets nor to harmless files; nothing of the target is in the answer."""
    secret = tmp_path / "secret"
    secret.write_text("root:$6$abc")
    (tmp_path / "link").symlink_to(secret)
    assert refusal(directory, "link") == "it is a symbolic link"


def test_what_is_no_file_is_not_opened(tmp_path: Path, directory: int) -> None:
    """A pipe would hold us for ever; a device may do anything."""
    os.mkfifo(tmp_path / "pipe")
    os.mknod(tmp_path / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "socket"))
    assert refusal(directory, "pipe") == "it is a named pipe"
    assert refusal(directory, "device") == "it is a device"
    assert refusal(directory, "folder") == "it is a folder"
    assert refusal(directory, "socket") == "it is a socket"


def test_a_second_name_is_refused(script: Path, tmp_path: Path, directory: int) -> None:
    """Otherwise one user could drop another's file."""
    os.link(script, tmp_path / "other")
    assert "hard link" in refusal(directory)


def test_roots_files_are_refused(script: Path, directory: int) -> None:
    """Nobody becomes root by a copy that root has made."""
    os.chown(script, 0, 0)
    assert "belongs to root" in refusal(directory)


def test_what_others_can_write_is_refused(script: Path, directory: int) -> None:
    """Their words would run as the owner's."""
    script.chmod(0o646)
    assert "everybody may write" in refusal(directory)
    script.chmod(0o664)
    os.chown(script, NOBODY.pw_uid, pwd.getpwnam("games").pw_gid)
    assert "group may write" in refusal(directory)


def test_a_site_may_trust_its_groups(script: Path, directory: int) -> None:
    """Where shared folders set the group on everything."""
    script.chmod(0o664)
    os.chown(script, NOBODY.pw_uid, pwd.getpwnam("games").pw_gid)
    trusting = inspection.Limits(largest_bytes=1000, group_writable=True)
    found = inspection.inspect(
        renames.Spot(directory, "job.sh"), name="job.sh", limits=trusting, expected=None
    )
    assert isinstance(found, inspection.Script)


def test_a_group_of_the_users_own_is_nobody_else(script: Path, directory: int) -> None:
    """Many systems make a group for each user and files that it may write."""
    games = pwd.getpwnam("games")
    script.chmod(0o664)
    os.chown(script, games.pw_uid, games.pw_gid)
    assert isinstance(inspect(directory), inspection.Script)


def test_an_oversized_file_is_not_read(script: Path, directory: int) -> None:
    """A gigabyte costs nothing: it is refused by its size."""
    with script.open("r+b") as stream:
        stream.truncate(2**30)
    assert "1024.0 MiB" in refusal(directory)


def test_an_owner_without_a_name_is_refused(script: Path, directory: int) -> None:
    """A number that this host does not know is no identity; it may be the name service that is away."""
    os.chown(script, 4242424, 4242424)
    assert "4242424" in refusal(directory, passing=True)


def test_a_group_that_the_host_does_not_know_may_be_the_users_own(
    script: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is let through, and nothing held against the file for good."""
    games = pwd.getpwnam("games")
    script.chmod(0o664)
    os.chown(script, games.pw_uid, games.pw_gid)

    def away(gid: int) -> grp.struct_group:
        raise KeyError(gid)

    monkeypatch.setattr(grp, "getgrgid", away)
    assert "group may write" in refusal(directory, passing=True)


def test_names_that_cannot_be_a_jobs_are_refused(script: Path, directory: int) -> None:
    """The reason is about the name."""
    assert "control character" in refusal(directory, shown="a\nb")


def test_a_file_that_is_not_as_it_was_when_it_settled_is_waited_for(script: Path, directory: int) -> None:
    """It was replaced or written after the last look."""
    before = listing.Sign.of(script.stat())
    assert isinstance(inspect(directory, expected=before), inspection.Script)
    script.write_bytes(b"#!/bin/sh\necho more\n")
    found = inspect(directory, expected=before)
    assert isinstance(found, inspection.Unsettled)
    assert found.sign == listing.Sign.of(script.stat())


def test_a_file_that_changes_while_it_is_read_is_waited_for(
    script: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is submitted was all there at one moment."""
    real = os.read

    def read_and_write(descriptor: int, most: int) -> bytes:
        data = real(descriptor, most)
        with script.open("ab") as stream:
            stream.write(b"more")
        return data

    monkeypatch.setattr(os, "read", read_and_write)
    assert isinstance(inspect(directory), inspection.Unsettled)


def test_a_file_that_is_gone_is_nothing(directory: int) -> None:
    """No error: its owner has changed their mind."""
    assert inspect(directory, "missing") is None
