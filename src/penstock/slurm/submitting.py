"""Runs sbatch as another user, with a script that nobody can change any more.

sbatch outlives us on purpose: killed in the middle, it would leave nobody who knows whether slurmctld had
heard it. Its streams are files of the spool, so whoever comes next can read the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Mapping

import msgspec

from penstock.slurm import answers, spooling

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_UMASK = 0o022
_CANNOT_ENTER = 71


class Submission(msgspec.Struct, frozen=True):
    """A script, whose it is, and what the job starts with."""

    token: str
    name: str
    data: bytes
    uid: int
    gid: int
    groups: tuple[int, ...]
    workdir: str
    environment: Mapping[str, str]


async def submit(wanted: Submission, *, spool: spooling.Spool, seconds: float) -> answers.Answer:
    """Ask sbatch once; "unknown" when it had to be killed."""
    with contextlib.ExitStack() as stack:
        script = sealed(wanted.data)
        stack.callback(os.close, script)
        path = spool.make(wanted.token, wanted.name, descriptor=script)
        out, err = spool.open_streams(wanted.token)
        stack.callback(os.close, err)
        stack.callback(os.close, out)
        process = await asyncio.create_subprocess_exec(
            _program(),
            "--parsable",
            str(path),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=dict(wanted.environment),
            pass_fds=(script,),
            user=wanted.uid,
            group=wanted.gid,
            extra_groups=wanted.groups,
            umask=_UMASK,
            start_new_session=True,
            preexec_fn=lambda: _enter(wanted.workdir),
        )
    try:
        code = await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        process.kill()
        await process.wait()
        return answers.Answer("unknown", words=f"sbatch did not end within {seconds:g} s")
    return spool.read(wanted.token, code=code)


def _program() -> str:
    """sbatch by our own PATH, not by the one that the job gets."""
    found = shutil.which("sbatch")
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "there is no sbatch on this host")
    return found


def sealed(data: bytes) -> int:
    """An open file in memory with this content, for ever."""
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


def _enter(workdir: str) -> None:
    """In the child, as the user: a folder that root may enter is not always one that the user may."""
    os.write(2, spooling.BEGUN)
    try:
        os.chdir(workdir)
    except OSError as error:
        os.write(2, f"{answers.NO_WORKDIR} {workdir}: {error.strerror}\n".encode())
        os._exit(_CANNOT_ENTER)
