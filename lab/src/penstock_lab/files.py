"""Files and directories of the lab: written atomically, and never readable by more users than intended.

A file gets its owner and mode before its content, and its name last. Directories are made or corrected in
place, so bringing a lab up again repairs them.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from penstock.nas import atomic


@dataclass(frozen=True)
class Owner:
    uid: int
    gid: int


ROOT = Owner(0, 0)
_TAIL_BYTES = 8192


def write(path: Path, content: str | bytes, *, mode: int = 0o644, owner: Owner | None = None) -> None:
    """Write the file atomically."""
    data = content.encode() if isinstance(content, str) else content
    atomic.write(path, data, mode=mode, owner=(owner.uid, owner.gid) if owner else None)


def write_once(path: Path, content: str | bytes, *, mode: int, owner: Owner | None = None) -> None:
    """Like write, but keeps an existing file: secrets must survive a repair."""
    if not path.exists():
        write(path, content, mode=mode, owner=owner)


def directory(path: Path, *, mode: int = 0o755, owner: Owner | None = None) -> None:
    """Make the directory, or correct the owner and mode of an existing one.

    A symbolic link in its place is an error: its target would change owner.
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
    """Remove a file, or a directory with its content; symbolic links are removed, not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def link(path: Path, target: Path) -> None:
    """Make or replace a symbolic link atomically."""
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.unlink(missing_ok=True)
    unfinished.symlink_to(target)
    unfinished.replace(path)


def tail(path: Path, *, lines: int = 8, since: int = 0) -> list[str]:
    """The last lines of a log after the offset `since`; empty if there is no log."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(since, path.stat().st_size - _TAIL_BYTES, 0))
            text = stream.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.split("\n") if line.strip()][-lines:]
