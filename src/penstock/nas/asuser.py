"""Doing something as another user: in a child process that has given up everything else.

A root process must not open, link or rename what a user names: a symbolic link or a swapped file would make
it act on somebody else's. So it forks, the child becomes the user for good, and the kernel decides what may
be done. Callers are single-threaded programs (the intake, the collector): fork is safe there and costs a
millisecond, which a new interpreter would not.
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
    """Who somebody is on this host."""

    uid: int
    gid: int
    name: str
    home: str
    groups: tuple[int, ...]
    shell: str = "/bin/sh"

    @classmethod
    def of(cls, uid: int) -> User:
        """The user with this number; UsageError when the host knows none."""
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            raise errors.UsageError(f"no user of this host has the number {uid}") from None
        groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
        return cls(
            uid=uid,
            gid=entry.pw_gid,
            name=entry.pw_name,
            home=entry.pw_dir,
            groups=groups,
            shell=entry.pw_shell or "/bin/sh",
        )


class _Answer(msgspec.Struct):
    """What a child says at its end: a result, an OSError, or an error of ours in words."""

    result: Any = None
    errno: int = 0
    message: str = ""
    hint: str = ""
    trace: str = ""


def run_as(user: User, function: Callable[[], Result], *, type: type[Result], timeout: float) -> Result:  # noqa: A002  # as msgspec calls it
    """Call `function` as `user` and return what it returned.

    The result crosses as JSON. An OSError or PenstockError there is raised here; so is ActingError when the
    child broke otherwise, or was still busy after `timeout` seconds and was killed.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_the_child(user, function, writing)
    os.close(writing)
    try:
        said = _read_all(reading, deadline=time.monotonic() + timeout)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # it has said everything, or said it too late
        os.waitpid(child, 0)
    return _unpack(said, user, type)


def become(user: User) -> None:
    """Be this user for good: groups first, since only root may set them."""
    if os.geteuid() == 0:
        os.setgroups(user.groups)
        os.setresgid(user.gid, user.gid, user.gid)
        os.setresuid(user.uid, user.uid, user.uid)
    elif os.geteuid() != user.uid:
        raise errors.ActingError(f"only root can act as {user.name}")


def _be_the_child(user: User, function: Callable[[], Any], writing: int) -> NoReturn:
    """Never returns into the caller's code, whatever happens."""
    try:
        os.setsid()
        become(user)
        answer = _Answer(result=function())
    except OSError as error:
        answer = _Answer(errno=error.errno or 5, message=str(error))
    except errors.PenstockError as error:
        answer = _Answer(message=error.message, hint=error.hint)
    except BaseException:  # noqa: BLE001  # it is passed on whole; nothing may unwind past the fork
        answer = _Answer(message="the step broke", trace=traceback.format_exc())
    try:
        _write_all(writing, _packed(answer))
    finally:
        os._exit(0)


def _packed(answer: _Answer) -> bytes:
    """Words may have names of files in them, which need not be text."""
    said = (answer.message, answer.hint, answer.trace)
    words = (text.encode(errors="backslashreplace").decode() for text in said)
    try:
        return msgspec.json.encode(_Answer(answer.result, answer.errno, *words))
    except (TypeError, ValueError):
        return msgspec.json.encode(_Answer(message="the step broke", trace=traceback.format_exc()))


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _read_all(descriptor: int, *, deadline: float) -> bytes | None:
    """Everything until the other end closes; None when the time is over first."""
    parts: list[bytes] = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return None
        part = os.read(descriptor, _CHUNK)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _unpack(said: bytes | None, user: User, type: type[Result]) -> Result:  # noqa: A002  # as msgspec calls it
    if said is None:
        raise errors.ActingError(f"a step as {user.name} took too long and was stopped")
    if not said:
        raise errors.ActingError(f"a step as {user.name} was killed")
    answer = msgspec.json.decode(said, type=_Answer)
    if answer.errno:
        raise OSError(answer.errno, answer.message)
    if answer.message:
        raise errors.ActingError(answer.message, hint=answer.hint or answer.trace)
    return msgspec.convert(answer.result, type)
