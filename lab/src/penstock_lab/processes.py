"""Processes in /proc: identity, parent, open files.

A process is identified by pid *and* start time, so a reused pid is never taken for ours. Environment
variables are never used: an editor started from a shell of the lab has them too.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_KIBIBYTE = 1024


@dataclass(frozen=True)
class Identity:
    """Identifies a process uniquely within a boot."""

    pid: int
    start_ticks: int


@dataclass(frozen=True)
class Process:
    identity: Identity
    parent: int
    name: str
    uid: int
    argv: tuple[str, ...]

    @property
    def pid(self) -> int:
        return self.identity.pid


def boot_id() -> str:
    """Changes with every boot: start times of an earlier boot mean nothing."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> Identity | None:
    """The identity of the process with this pid; None if it is gone or a zombie."""
    stat = _stat(pid)
    if stat is None or stat[0] in ("Z", "X"):
        return None
    return Identity(pid, int(stat[19]))


def alive(identity: Identity) -> bool:
    """Whether exactly this process still exists."""
    return identify(identity.pid) == identity


def memory_bytes(identity: Identity) -> int:
    """Resident memory; 0 if the process is gone."""
    try:
        status = (PROC / str(identity.pid) / "status").read_text(errors="replace")
    except OSError:
        return 0
    for line in status.split("\n"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * _KIBIBYTE
    return 0


def snapshot() -> list[Process]:
    """All processes except zombies."""
    pids = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())
    return [process for process in map(_look, pids) if process is not None]


def descendants(roots: Iterable[int], processes: Iterable[Process]) -> list[Process]:
    """All descendants of the pids `roots`, without the roots."""
    children: dict[int, list[Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    found: dict[int, Process] = {}
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child.pid not in found:
                found[child.pid] = child
                waiting.append(child.pid)
    return list(found.values())


def holds(pid: int, directory: Path) -> bool:
    """Whether the process has its working directory or an open file in `directory`."""
    prefix = f"{directory}/"
    return any(f"{target}/".startswith(prefix) for target in open_targets(pid))


def send(identity: Identity, number: signal.Signals) -> bool:
    """Send a signal to exactly this process; False if it is gone. A pidfd prevents pid reuse."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return False
    try:
        if not alive(identity):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def end(identities: Iterable[Identity], *, grace: float, kill_wait: float = 5.0) -> list[Identity]:
    """SIGTERM, then SIGKILL after `grace` seconds; returns the processes that remain."""
    remaining = [identity for identity in identities if send(identity, signal.SIGTERM)]
    remaining = wait_gone(remaining, seconds=grace)
    remaining = [identity for identity in remaining if send(identity, signal.SIGKILL)]
    return wait_gone(remaining, seconds=kill_wait)


def wait_gone(identities: Iterable[Identity], *, seconds: float) -> list[Identity]:
    """Wait until the processes are gone; returns those that remain after `seconds`."""
    deadline = time.monotonic() + seconds
    remaining = [identity for identity in identities if alive(identity)]
    while remaining and time.monotonic() < deadline:
        time.sleep(0.02)
        remaining = [identity for identity in remaining if alive(identity)]
    return remaining


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third (state) on: the second may contain blanks and brackets, and an
    incomplete character where the kernel has cut a name after 15 bytes.
    """
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _look(pid: int) -> Process | None:
    identity = identify(pid)
    stat = _stat(pid)
    if identity is None or stat is None:
        return None
    try:
        folder = PROC / str(pid)
        name = (folder / "comm").read_text(errors="replace").strip()
        argv = tuple((folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1])
        uid = folder.stat().st_uid
    except OSError:
        return None
    return Process(identity=identity, parent=int(stat[1]), name=name, uid=uid, argv=argv)


def open_targets(pid: int) -> Iterator[str]:
    """The process's working directory and open files; empty without permission."""
    folder = PROC / str(pid)
    try:
        links = [folder / "cwd", *(folder / "fd").iterdir()]
    except OSError:
        return
    for link in links:
        try:
            yield str(link.readlink())
        except OSError:
            continue
