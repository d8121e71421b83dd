"""Notes of Epilogs, beside penstockd's socket: whose Epilog a node was drained for.

Slurm writes "Epilog error" whichever Epilog failed, and nothing at all on a node that is drained already. Our
Epilog keeps a note while it runs (hooks/ask.py) and takes it away when it ends well; it is locked until then,
so one that was killed is known by its note. The site's own Epilog runs before it; that it failed is a note,
too.
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
    """What is known of one run of an Epilog."""

    path: Path
    node: str
    job_id: int
    is_ours: bool
    """Whether the site's own Epilog passed and ours began."""
    is_running: bool
    at: float
    """When it was made, in seconds of the epoch."""


@dataclasses.dataclass(frozen=True)
class Notes:
    """A folder of them, and of other things."""

    folder: Path

    def read(self) -> tuple[Note, ...]:
        """All that are there; a folder that cannot be read has none, so that no node is freed for them."""
        try:
            paths = sorted(self.folder.iterdir())
        except OSError:
            return ()
        return tuple(note for path in paths for note in _note(path))

    def remove(self, note: Note) -> None:
        """Forget it; one that stays is only read again."""
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
