"""Notes of Epilogs, files beside penstockd's socket: they tell why Slurm drained a node.

Slurm's reason is "Epilog error" whichever Epilog failed, and is not set on a node that is drained already.
Our Epilog holds a locked note while it runs (hooks/ask.py) and removes it when it succeeds, so an unlocked
note means that it was killed. A failure of the site's own Epilog, which runs first, is a note, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

from penstock.hooks import ask

PARTS = 4


@dataclasses.dataclass(frozen=True)
class Note:
    """One run of an Epilog."""

    path: Path
    node: str
    job_id: int
    is_ours: bool
    """Ours ran, after the site's own Epilog had succeeded."""
    is_running: bool
    at: float
    """Seconds since the epoch."""


@dataclasses.dataclass(frozen=True)
class Notes:
    """A folder with notes and other files."""

    folder: Path

    def read(self) -> tuple[Note, ...]:
        """All notes; none if the folder cannot be read, so that no node is resumed."""
        try:
            paths = sorted(self.folder.iterdir())
        except OSError:
            return ()
        return tuple(note for path in paths for note in _note(path))

    def remove(self, note: Note) -> None:
        with contextlib.suppress(OSError):
            note.path.unlink()


def _note(path: Path) -> Iterator[Note]:
    parts = path.name.split(":")
    if len(parts) != PARTS or parts[0] != ask.NOTE or not parts[2].isdecimal():
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return
    try:
        at, is_running = os.fstat(descriptor).st_mtime, _is_locked(descriptor)
    finally:
        os.close(descriptor)
    yield Note(path, parts[1], int(parts[2]), parts[3] == ask.OURS, is_running, at)


def _is_locked(descriptor: int) -> bool:
    try:
        os.lockf(descriptor, os.F_TEST, 0)
    except OSError:
        return True
    return False
