"""Acting as another user: who the child is, what comes back, and what happens when it does not end."""

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
def test_child_is_the_user_with_his_groups_and_nothing_more() -> None:
    """The child has the user's uid, gid and groups, for good; the parent keeps its own."""
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
def test_words_that_are_no_text_do_not_send_the_child_back(tmp_path: Path, kind: type[Exception]) -> None:
    """Names of files may be in them: it went on in its caller's code, as a second one of that."""
    parent = os.getpid()

    def refuse() -> str:
        raise kind("no \udcff")

    try:
        with pytest.raises((errors.ActingError, OSError), match=r"no|broke"):
            asuser.run_as(me(), refuse, type=str, timeout=60)
    finally:
        if os.getpid() != parent:
            (tmp_path / "back").touch()
            os._exit(1)
    assert not (tmp_path / "back").exists()


@as_root
def test_kernel_decides_what_the_child_may_read(tmp_path: Path) -> None:
    """A file of root's with mode 600 stays unread, and the caller gets the kernel's own error."""
    secret = tmp_path / "secret"
    secret.write_text("no")
    secret.chmod(0o600)
    with pytest.raises(PermissionError):
        asuser.run_as(nobody(), secret.read_text, type=str, timeout=60)


def test_errors_of_ours_cross_with_their_words() -> None:
    """A PenstockError in the child arrives with message and hint."""

    def refuse() -> str:
        raise errors.UsageError("that is a link", hint="copy the file")

    with pytest.raises(errors.ActingError) as caught:
        asuser.run_as(me(), refuse, type=str, timeout=60)
    assert (caught.value.message, caught.value.hint) == ("that is a link", "copy the file")


def test_a_broken_step_arrives_with_its_trace() -> None:
    """What nobody foresaw is not swallowed: the trace is in the hint."""
    with pytest.raises(errors.ActingError) as caught:
        asuser.run_as(me(), lambda: 1 // 0, type=int, timeout=60)
    assert "ZeroDivisionError" in caught.value.hint


def children() -> set[str]:
    """Of this thread, which is the one that acts; others may have theirs."""
    thread = threading.get_native_id()
    return set(Path(f"/proc/self/task/{thread}/children").read_text().split())


def test_a_step_that_does_not_end_is_killed() -> None:
    """The caller waits no longer than the time-out, and no child is left."""
    began = time.monotonic()
    before = children()
    with pytest.raises(errors.ActingError, match="too long"):
        asuser.run_as(me(), lambda: time.sleep(60), type=type(None), timeout=0.2)
    assert time.monotonic() - began < 10
    assert children() - before == set()


def test_a_child_that_dies_is_noticed() -> None:
    """A child that ends without a word is an error, not an empty result."""
    with pytest.raises(errors.ActingError, match="killed"):
        asuser.run_as(me(), lambda: os.kill(os.getpid(), 9), type=type(None), timeout=60)


def test_large_results_cross_whole() -> None:
    """More than a pipe holds arrives complete."""
    assert len(asuser.run_as(me(), lambda: "x" * 1_000_000, type=str, timeout=60)) == 1_000_000


def test_unknown_uid_is_refused_in_words() -> None:
    """A number without a user is no identity."""
    with pytest.raises(errors.UsageError, match="4242424"):
        asuser.User.of(4242424)


def test_atomic_write_leaves_nothing_when_it_fails(tmp_path: Path) -> None:
    """A target that cannot be replaced stays as it was, without a temporary file beside it."""
    target = tmp_path / "dir"
    (target / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        atomic.write(target, b"x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["dir"]


def test_atomic_write_sets_mode_and_content(tmp_path: Path) -> None:
    """The file has the content and the mode asked for, replacing what was there."""
    target = tmp_path / "file"
    target.write_text("old")
    atomic.write(target, b"new", mode=0o600)
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o600
