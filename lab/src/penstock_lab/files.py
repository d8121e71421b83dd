"""Files and directories of the lab: whole or not at all, and never readable by more people than meant.

A file gets its owner and mode before its content, and its name last. Directories are made or corrected in
place, so that bringing a lab up a second time repairs them.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from penstock.nas import atomic


@dataclass(frozen=True)
class Owner:
    """Who a file belongs to."""

    uid: int
    gid: int


ROOT = Owner(0, 0)
_TAIL_BYTES = 8192


def write(path: Path, content: str | bytes, *, mode: int = 0o644, owner: Owner | None = None) -> None:
    """Put `content` at `path` in one step; nobody ever sees half of it."""
    data = content.encode() if isinstance(content, str) else content
    atomic.write(path, data, mode=mode, owner=(owner.uid, owner.gid) if owner else None)


def write_once(path: Path, content: str | bytes, *, mode: int, owner: Owner | None = None) -> None:
    """Like write, but a file that exists is kept as it is: secrets must outlive a repair."""
    if not path.exists():
        write(path, content, mode=mode, owner=owner)


def directory(path: Path, *, mode: int = 0o755, owner: Owner | None = None) -> None:
    """Make the directory, or give the one that is there the right owner and mode.

    A link in its place is an error: its maker would get what the link points to.
    """
    path.mkdir(exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if owner is not None:
            os.fchown(descriptor, owner.uid, owner.gid)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file, or a directory with all that is in it; links are removed, never followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def tail(path: Path, *, lines: int = 8, since: int = 0) -> list[str]:
    """The last lines of a log, none from before the offset `since`; nothing when there is no log."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(since, path.stat().st_size - _TAIL_BYTES, 0))
            text = stream.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.split("\n") if line.strip()][-lines:]
