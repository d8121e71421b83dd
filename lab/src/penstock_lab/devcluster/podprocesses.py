"""Container processes: started, reaped without polling, limited in memory, never left behind.

A container's first process dies with the dev cluster, however that ends (podinit sets PDEATHSIG), and with it
all others of its PID namespace. Memory limits are cgroups, version 2 or 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import marshal
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from penstock_lab.devcluster.statuses import Json

UNIFIED = Path("/sys/fs/cgroup")
LEGACY = Path("/sys/fs/cgroup/memory")
_PODINIT: Final = (
    f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import podinit; podinit.main()"
)
_START_TIMEOUT: Final = 30.0


class StartError(Exception):
    """The container's first process could not be started."""


async def _readable(fd: int) -> None:
    ready = asyncio.Event()
    asyncio.get_running_loop().add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        asyncio.get_running_loop().remove_reader(fd)


async def reap(pid: int) -> int:
    """Wait for a child; returns its wait status."""
    handle = os.pidfd_open(pid)
    try:
        await _readable(handle)
        return os.waitpid(pid, 0)[1]  # noqa: ASYNC222  the pidfd is readable, so it has ended
    finally:
        os.close(handle)


async def start(about: Json, output: int) -> int:
    """Run podinit with this description; returns the pid once the command is exec'd."""
    source, sink = os.pipe()
    try:
        podinit = _spawn(about, output, sink)
    finally:
        os.close(sink)
    words = await _said(source)
    pid, failed = int(words.get("pid", 0)), "error" in words or "pid" not in words
    for other in {podinit, pid} - ({0} if failed else {pid}):
        if failed:
            send(other, signal.SIGKILL)
        await reap(other)
    if failed:
        raise StartError(words.get("error", "the start program ended with no output"))
    return pid


def _spawn(about: Json, output: int, status: int) -> int:
    argv = [sys.executable, "-IS", "-c", _PODINIT, str(status)]
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=output, stderr=output, pass_fds=(status,), env={}, cwd="/"
    )
    process.returncode = 0  # reaped by reap(), never by the Popen object
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(marshal.dumps(about))
    return process.pid


async def _said(fd: int) -> dict[str, str]:
    """podinit's messages until the command is exec'd: lines of a word and its text."""
    found = bytearray()
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            while found[-1:] != b"\0":
                await _readable(fd)
                found += os.read(fd, 4096) or b"\0"
    except TimeoutError:
        found += b"error not started within %d s\n" % _START_TIMEOUT
    finally:
        os.close(fd)
    lines = found.rstrip(b"\0").decode(errors="replace").split("\n")
    return {word: text for word, _, text in (line.partition(" ") for line in lines) if word}


def send(pid: int, number: int) -> None:
    """Signal a process that may have ended; SIGKILL goes to its whole process group."""
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)
        os.kill(pid, number)


class Group:
    def __init__(self, path: Path) -> None:
        self.path = path

    def was_out_of_memory(self) -> bool:
        """Whether the kernel has OOM-killed a process in it."""
        files = [self.path / name for name in ("memory.events", "memory.oom_control")]
        words = "\n".join(file.read_text() for file in files if file.exists()).split()
        return any(word == "oom_kill" and int(count) > 0 for word, count in itertools.pairwise(words))

    def remove(self) -> None:
        """Remove it; the kernel refuses while the last process is exiting."""
        deadline = time.monotonic() + 1
        while self.path.exists():
            try:
                self.path.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.002)


def cgroup_name(data_dir: Path) -> str:
    """Name of the parent of a cluster's cgroups; also used to clean up after it was killed."""
    return "penstock-" + hashlib.sha256(str(data_dir.resolve()).encode()).hexdigest()[:12]


class Cgroups:
    """The parent of all our cgroups, named after the data directory, so that clusters do not collide."""

    def __init__(self, data_dir: Path) -> None:
        self._legacy = not (UNIFIED / "cgroup.controllers").exists()
        self.parent = (LEGACY if self._legacy else UNIFIED) / cgroup_name(data_dir)
        self.problem = ""
        try:
            self.remove_all()
            self.parent.mkdir()
            if not self._legacy:
                (self.parent / "cgroup.subtree_control").write_text("+memory")
        except OSError as error:
            self.problem = f"memory limits are not enforced: {error.strerror}: {error.filename}"

    def make(self, name: str, limit: int) -> Group | None:
        """Make a cgroup with this memory limit in bytes; None if this machine does not allow it."""
        if self.problem:
            return None
        path = self.parent / name
        path.mkdir()
        if self._legacy:
            (path / "memory.limit_in_bytes").write_text(str(limit))
            return Group(path)
        (path / "memory.max").write_text(str(limit))
        (path / "memory.oom.group").write_text("1")
        if (path / "memory.swap.max").exists():
            (path / "memory.swap.max").write_text("0")
        return Group(path)

    def remove_all(self) -> None:
        if self.parent.is_dir():
            for child in [path for path in self.parent.iterdir() if path.is_dir()]:
                Group(child).remove()
            self.parent.rmdir()
