"""Which daemon of ours runs, and with which settings.

A daemon locks a file in its state folder for as long as it lives, and writes the fingerprint of its settings
file into it. So the doctor can tell one that does not run, and one that was not restarted after a change.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import stat
import time
from pathlib import Path

LOOKING_SECONDS = 1.0
"""How long a daemon tries to get its lock: whoever looks at it holds it for a moment."""
POLL_SECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class Presence:
    """What a lock tells of the daemon that it belongs to."""

    runs: bool
    settings: str = ""
    """Fingerprint of the settings that it runs with; empty when it has not said."""


def fingerprint(path: Path) -> str:
    """Of a settings file as it is now."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def hold(path: Path, settings: str = "") -> int:
    """The descriptor that keeps the lock; BlockingIOError when another daemon has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _lock(descriptor)
        _write(descriptor, f"{settings}\n".encode())
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int) -> None:
    deadline = time.monotonic() + LOOKING_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(POLL_SECONDS)
        else:
            return


def _write(descriptor: int, text: bytes) -> None:
    """Not through another name of the file: the collector is root in a folder of SlurmUser's."""
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)


def look(path: Path) -> Presence:
    """Whether a daemon holds the lock; OSError when we may not look."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return Presence(runs=False)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return Presence(runs=True, settings=os.pread(descriptor, 100, 0).decode(errors="replace").strip())
    finally:
        os.close(descriptor)
    return Presence(runs=False)
