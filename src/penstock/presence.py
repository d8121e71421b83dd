"""Which of our daemons run, and with which settings.

A daemon locks a file in its state folder while it lives, and writes the fingerprint of its settings file
there. So the doctor can detect a daemon that does not run, or that was not restarted after a change.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import stat
import time
from pathlib import Path

LOOKING_SECONDS = 1.0  # how long a daemon tries to get its lock: whoever looks at it holds it for a moment
POLL_SECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class Presence:
    """The state of a daemon, from its lock."""

    runs: bool
    settings: str = ""  # fingerprint of the settings that it runs with; empty when it has not said


def fingerprint(path: Path) -> str:
    """Of the current settings file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def hold(path: Path, settings: str = "") -> int:
    """Take the lock; returns its descriptor. BlockingIOError if another daemon has it."""
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
    """Not through a hard link: the collector is root in a folder that SlurmUser owns."""
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)


def look(path: Path) -> Presence:
    """Whether a daemon holds the lock. OSError if we may not read it."""
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
