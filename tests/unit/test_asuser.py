"""run_as: identity of the child, its result, and children that fail or hang."""

from __future__ import annotations

import os
import pwd
import threading
import time
from pathlib import Path

import pytest

from penstock import errors
from penstock.nas import asuser, atomic

NOBODY = pwd.getpwnam("nobody")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def me() -> asuser.User:
    return asuser.User.of(os.geteuid())


def nobody() -> asuser.User:
    return asuser.User.of(NOBODY.pw_uid)


@as_root
def test_child_has_only_the_users_ids() -> None:
    """Uid, gid and groups, for good; the parent keeps its own."""
    seen = asuser.run_as(
        nobody(),
        lambda: [*os.getresuid(), *os.getresgid(), *sorted(os.getgroups())],
        type=list[int],
        timeout=60,
    )
    uid, gid = NOBODY.pw_uid, NOBODY.pw_gid
    assert seen == [uid, uid, uid, gid, gid, gid, *sorted(nobody().groups)]
    assert os.geteuid() == 0


@pytest.mark.parametrize("kind", [ValueError, errors.UsageError, OSError])
def test_child_never_returns_into_callers_code(tmp_path: Path, kind: type[Exception]) -> None:
    """An error message with a file name that is not UTF-8 once made it do so."""
    parent = os.getpid()

    def refuse() -> str:
        raise kind("no \udcff")

    try:
        with pytest.raises((errors.ActingError, OSError), match=r"no|failed"):
            asuser.run_as(me(), refuse, type=str, timeout=60)
    finally:
        if os.getpid() != parent:
            (tmp_path / "back").touch()
            os._exit(1)
    assert not (tmp_path / "back").exists()


@as_root
def test_kernel_checks_access_of_child(tmp_path: Path) -> None:
    """A file of root with mode 600 is not read; the caller gets the kernel's error."""
    secret = tmp_path / "secret"
    secret.write_text("no")
    secret.chmod(0o600)
    with pytest.raises(PermissionError):
        asuser.run_as(nobody(), secret.read_text, type=str, timeout=60)


def test_penstock_errors_are_passed_on() -> None:
    """With message and hint."""

    def refuse() -> str:
        raise errors.UsageError("that is a link", hint="copy the file")

    with pytest.raises(errors.ActingError) as caught:
        asuser.run_as(me(), refuse, type=str, timeout=60)
    assert (caught.value.message, caught.value.hint) == ("that is a link", "copy the file")


def test_unexpected_error_is_passed_on_with_traceback() -> None:
    """In the hint."""
    with pytest.raises(errors.ActingError) as caught:
        asuser.run_as(me(), lambda: 1 // 0, type=int, timeout=60)
    assert "ZeroDivisionError" in caught.value.hint


def children() -> set[str]:
    """Of this thread, which forks; other threads may have their own."""
    thread = threading.get_native_id()
    return set(Path(f"/proc/self/task/{thread}/children").read_text().split())


def test_hanging_child_is_killed() -> None:
    """The caller waits no longer than the timeout, and no child is left."""
    began = time.monotonic()
    before = children()
    with pytest.raises(errors.ActingError, match="too long"):
        asuser.run_as(me(), lambda: time.sleep(60), type=type(None), timeout=0.2)
    assert time.monotonic() - began < 10
    assert children() - before == set()


def test_killed_child_is_an_error() -> None:
    """Not an empty result."""
    with pytest.raises(errors.ActingError, match="killed"):
        asuser.run_as(me(), lambda: os.kill(os.getpid(), 9), type=type(None), timeout=60)


def test_large_results_are_complete() -> None:
    """More than a pipe holds."""
    assert len(asuser.run_as(me(), lambda: "x" * 1_000_000, type=str, timeout=60)) == 1_000_000


def test_unknown_uid_is_refused() -> None:
    """With the uid in the message."""
    with pytest.raises(errors.UsageError, match="4242424"):
        asuser.User.of(4242424)


def test_failed_atomic_write_leaves_nothing(tmp_path: Path) -> None:
    """The target stays as it was, without a temporary file beside it."""
    target = tmp_path / "dir"
    (target / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        atomic.write(target, b"x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["dir"]


def test_atomic_write_sets_mode_and_content(tmp_path: Path) -> None:
    """An existing file is replaced."""
    target = tmp_path / "file"
    target.write_text("old")
    atomic.write(target, b"new", mode=0o600)
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o600
