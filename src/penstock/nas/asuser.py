"""Runs a function as another user, in a forked child that has dropped all other privileges.

A root process must not open, link or rename a path that a user controls: a symbolic link or a swapped file
would redirect it to somebody else's file. The child becomes the user for good, so the kernel checks the
access. Callers are single-threaded (the intake, the collector): there a fork is safe and takes 1 ms, much
less than a new interpreter.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import msgspec

from penstock import errors

Result = TypeVar("Result")
_CHUNK = 1 << 16


class User(msgspec.Struct, frozen=True):
    uid: int
    gid: int
    name: str
    home: str
    groups: tuple[int, ...]
    shell: str = "/bin/sh"

    @classmethod
    def of(cls, uid: int) -> User:
        """The user with this uid. Raises UsageError if the host does not know it."""
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            raise errors.UsageError(f"no user of this host has uid {uid}") from None
        groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
        return cls(uid, entry.pw_gid, entry.pw_name, entry.pw_dir, groups, entry.pw_shell or "/bin/sh")


class _Answer(msgspec.Struct):
    """The child's answer: a result, an OSError, or a PenstockError."""

    result: Any = None
    errno: int = 0
    message: str = ""
    hint: str = ""
    trace: str = ""


def run_as(user: User, function: Callable[[], Result], *, type: type[Result], timeout: float) -> Result:  # noqa: A002  # as msgspec calls it
    """Call `function` as `user` and return its result, which is passed as JSON.

    An OSError or PenstockError of the child is raised here; ActingError if the child failed otherwise, or was
    killed after `timeout` seconds.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run_child(user, function, writing)
    os.close(writing)
    try:
        reply = _read_all(reading, deadline=time.monotonic() + timeout)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # it has answered, or is late
        os.waitpid(child, 0)
    return _unpack(reply, user, type)


def become(user: User) -> None:
    """Drop privileges for good: groups first, since only root may set them."""
    if os.geteuid() == 0:
        os.setgroups(user.groups)
        os.setresgid(user.gid, user.gid, user.gid)
        os.setresuid(user.uid, user.uid, user.uid)
    elif os.geteuid() != user.uid:
        raise errors.ActingError(f"only root can act as {user.name}")


def _run_child(user: User, function: Callable[[], Any], writing: int) -> NoReturn:
    """Never returns into the caller's code."""
    try:
        os.setsid()
        become(user)
        answer = _Answer(result=function())
    except OSError as error:
        answer = _Answer(errno=error.errno or 5, message=str(error))
    except errors.PenstockError as error:
        answer = _Answer(message=error.message, hint=error.hint)
    except BaseException:  # noqa: BLE001  # passed on with its traceback; nothing may unwind past the fork
        answer = _Answer(message="the child process failed", trace=traceback.format_exc())
    try:
        with os.fdopen(writing, "wb") as stream:
            stream.write(_packed(answer))
    finally:
        os._exit(0)


def _packed(answer: _Answer) -> bytes:
    texts = (answer.message, answer.hint, answer.trace)
    escaped = (text.encode(errors="backslashreplace").decode() for text in texts)
    try:
        return msgspec.json.encode(_Answer(answer.result, answer.errno, *escaped))
    except (TypeError, ValueError):
        return msgspec.json.encode(_Answer(message="the child process failed", trace=traceback.format_exc()))


def _read_all(descriptor: int, *, deadline: float) -> bytes | None:
    """Read to the end of file; None if the deadline passes first."""
    parts: list[bytes] = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return None
        part = os.read(descriptor, _CHUNK)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _unpack(reply: bytes | None, user: User, type: type[Result]) -> Result:  # noqa: A002  # as msgspec calls it
    if reply is None:
        raise errors.ActingError(f"a child process of {user.name} took too long and was killed")
    if not reply:
        raise errors.ActingError(f"a child process of {user.name} was killed")
    answer = msgspec.json.decode(reply, type=_Answer)
    if answer.errno:
        raise OSError(answer.errno, answer.message)
    if answer.message:
        raise errors.ActingError(answer.message, hint=answer.hint or answer.trace)
    return msgspec.convert(answer.result, type)
