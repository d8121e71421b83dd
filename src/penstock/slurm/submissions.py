"""Runs sbatch as another user, with a script that can no longer be changed.

sbatch outlives this process on purpose: if it were killed midway, nobody would know whether slurmctld has
got the job. Its streams are files of the spool, so a later process can read the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
from collections.abc import Mapping

import msgspec

from penstock.slurm import answers, spools

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_UMASK = 0o022
_CANNOT_ENTER = 71
_LOOK_SECONDS = 0.1


class Submission(msgspec.Struct, frozen=True):
    """A script, its owner, and the job's workdir and environment."""

    token: str
    name: str
    data: bytes
    uid: int
    gid: int
    groups: tuple[int, ...]
    workdir: str
    environment: Mapping[str, str]


async def submit(wanted: Submission, *, spool: spools.Spool, seconds: float) -> answers.Answer:
    """Run sbatch once; "unknown" if it had to be killed before it named a job."""
    with contextlib.ExitStack() as stack:
        script = sealed(wanted.data)
        stack.callback(os.close, script)
        path = spool.make(wanted.token, wanted.name, descriptor=script)
        out, err = spool.open_streams(wanted.token)
        stack.callback(os.close, err)
        stack.callback(os.close, out)
        process = _start(wanted, str(path), script=script, out=out, err=err)
    try:
        code = await asyncio.wait_for(_end(process), seconds)
    except TimeoutError:
        process.kill()
        await _end(process)
        said = _said(wanted, spool, code=None)
        unknown = answers.Answer("unknown", words=f"sbatch did not end within {seconds:g} s")
        return said if said.kind == "accepted" else unknown
    return _said(wanted, spool, code=code)


def _said(wanted: Submission, spool: spools.Spool, *, code: int | None) -> answers.Answer:
    """sbatch's answer. It has run, so an unreadable answer means "unknown"."""
    try:
        return spool.read(wanted.token, code=code)
    except OSError as error:
        return answers.Answer("unknown", words=f"sbatch's output cannot be read: {error.strerror}")


async def _end(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, once it has ended."""
    with contextlib.ExitStack() as stack:
        try:
            ended = _watched(process.pid, stack)
        except OSError:  # it is running nevertheless
            while process.poll() is None:  # noqa: ASYNC110  # no other way to see its end
                await asyncio.sleep(_LOOK_SECONDS)
        else:
            await ended.wait()
    return process.wait()


def _watched(pid: int, stack: contextlib.ExitStack) -> asyncio.Event:
    """Set when the process has ended. OSError if the host has no descriptor left for that."""
    descriptor = os.pidfd_open(pid)
    stack.callback(os.close, descriptor)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    stack.callback(loop.remove_reader, descriptor)
    return ended


def _start(wanted: Submission, path: str, *, script: int, out: int, err: int) -> subprocess.Popen[bytes]:
    """Not by asyncio, which kills its child processes when it ends."""
    program = _program()
    try:
        return subprocess.Popen(
            (program, "--parsable", path),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=dict(wanted.environment),
            pass_fds=(script,),
            user=wanted.uid,
            group=wanted.gid,
            extra_groups=wanted.groups,
            umask=_UMASK,
            start_new_session=True,
            preexec_fn=lambda: _enter(wanted.workdir, program, script),
        )
    except subprocess.SubprocessError as error:  # the child could not write BEGUN and stopped
        raise OSError(errno.EIO, "its answer has no room on the disk of the intake's state") from error


def _program() -> str:
    """sbatch in our own PATH, not in the job's."""
    found = shutil.which("sbatch")
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "there is no sbatch on this host")
    return found


def sealed(data: bytes) -> int:
    """An immutable file in memory with this content."""
    descriptor = os.memfd_create("script", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fchmod(descriptor, 0o444)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _enter(workdir: str, program: str, script: int) -> None:
    """In the child, as the user: root may enter folders that the user may not.

    A home whose server does not answer may block the child for hours. So it first closes all of the
    intake's descriptors: its lock, and the pipe on which the intake waits for the exec of sbatch.
    """
    os.write(2, spools.BEGUN)
    if os.access(program, os.X_OK):  # else the intake must get the reason why sbatch cannot be run
        _close_all_but(script)
    try:
        os.chdir(workdir)
    except OSError as error:
        os.write(2, f"{answers.NO_WORKDIR} {workdir}: {error.strerror}\n".encode())
        os._exit(_CANNOT_ENTER)


def _close_all_but(script: int) -> None:
    """Close all descriptors but the script's and the three streams."""
    for entry in list(os.scandir("/proc/self/fd")):
        number = int(entry.name)
        if number > 2 and number != script:
            with contextlib.suppress(OSError):  # one of them was scandir's own
                os.close(number)
