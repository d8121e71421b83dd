"""Changes folders that their owner has protected by `chmod -R a-w`: moving one changes its `..`, too.

Runs as the owner. After an interruption a folder stays writable, and the change can be repeated.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path


def is_closed(path: Path) -> bool:
    """Whether it is a folder without write permission for its owner."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(mode) and not mode & stat.S_IWUSR


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[None]:
    """Make the folder writable within the context."""
    if not is_closed(folder):
        yield
        return
    mode = stat.S_IMODE(folder.lstat().st_mode)
    folder.chmod(mode | stat.S_IRWXU)
    try:
        yield
    finally:
        folder.chmod(mode)


def move(source: Path, target: Path) -> None:
    """Rename, also a protected folder, which keeps its mode."""
    if not is_closed(source):
        source.rename(target)
        return
    mode = stat.S_IMODE(source.lstat().st_mode)
    source.chmod(mode | stat.S_IRWXU)
    moved = source
    try:
        moved = source.rename(target)
    finally:
        moved.chmod(mode)


def make_folders(path: Path) -> None:
    """mkdir -p, also below protected folders."""
    if not path.is_dir():
        make_folders(path.parent)
        with opened(path.parent):
            path.mkdir(exist_ok=True)
