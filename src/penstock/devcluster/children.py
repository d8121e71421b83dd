"""Processes of the agents: started, waited for without polling, never left behind.

Every pid is recorded with its start time, so that the next dev cluster in the same directory can end what
an earlier one, killed hard, may have left; the start time tells a leftover from an innocent process that
got its number.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from penstock.devcluster.statuses import Json

_PODINIT: Final = Path(__file__).with_name("podinit.py")
_START_TIMEOUT: Final = 30.0


class StartError(Exception):
    """The container's first process could not be started; the message says why."""


async def readable(fd: int) -> None:
    """Wait until the file descriptor has something to say."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


async def reap(pid: int) -> int:
    """Wait status of a child of ours, as soon as it has ended."""
    handle = os.pidfd_open(pid)
    try:
        await readable(handle)
        return os.waitpid(pid, 0)[1]  # noqa: ASYNC222  it has ended: the pidfd says so
    finally:
        os.close(handle)


async def _said(fd: int) -> dict[str, str]:
    """What podinit says until the command is exec'd: each line a word and its text."""
    found = bytearray(b"")
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            while found[-1:] != b"\0":
                await readable(fd)
                found += os.read(fd, 4096) or b"\0"
    except TimeoutError:
        found += b"error not started within %d s\n" % _START_TIMEOUT
    finally:
        os.close(fd)
    lines = found.rstrip(b"\0").decode(errors="replace").splitlines()
    return {word: text for word, _, text in (line.partition(" ") for line in lines)}


class Children:
    """Starts containers' first processes and knows which are alive."""

    def __init__(self, records: Path) -> None:
        self._records = records
        records.mkdir(parents=True, exist_ok=True)

    async def start(self, about: Json, output: int) -> int:
        """Run podinit with this description; the answer is the pid once the command is exec'd."""
        status_read, status_write = os.pipe()
        try:
            podinit = self._spawn(about, output, status_write)
        finally:
            os.close(status_write)
        words = await _said(status_read)
        pid = int(words.get("pid", 0))
        failed = "error" in words or not pid
        for other in {podinit, pid} - {0} if failed else {podinit} - {pid}:
            if failed:
                send(other, signal.SIGKILL)
            await reap(other)
        if failed:
            raise StartError(words.get("error", "the start program ended without a word"))
        self._record(pid)
        return pid

    def _spawn(self, about: Json, output: int, status: int) -> int:
        argv = [sys.executable, "-IS", str(_PODINIT), str(status)]
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=output, stderr=output, pass_fds=(status,), env={}, cwd="/"
        )
        process.returncode = 0  # reaped by reap(), never by the Popen object
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
                stdin.write(json.dumps(about).encode())
        return process.pid

    def _record(self, pid: int) -> None:
        started = start_time(pid)
        if started:
            (self._records / str(pid)).write_text(started)

    async def wait(self, pid: int) -> int:
        """Wait status of a started process; the record goes with it."""
        status = await reap(pid)
        (self._records / str(pid)).unlink(missing_ok=True)
        return status


def start_time(pid: int) -> str:
    """The kernel's start time of a process, or nothing when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def end_leftovers(records: Path, *, timeout: float = 5.0) -> list[int]:
    """Kill what an earlier run recorded and left running; returns when it is gone."""
    found = {int(path.name): path.read_text() for path in records.glob("[0-9]*")} if records.is_dir() else {}
    alive = [pid for pid, started in found.items() if started and start_time(pid) == started]
    for pid in alive:
        send(pid, signal.SIGKILL)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and any(start_time(pid) == found[pid] for pid in alive):
        time.sleep(0.02)
    for pid in found:
        (records / str(pid)).unlink(missing_ok=True)
    return alive


def send(pid: int, number: int) -> None:
    """Signal a process that may just have ended; SIGKILL goes to its whole session."""
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)
        os.kill(pid, number)
