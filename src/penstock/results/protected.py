"""Folders that their owner has protected: opened for what has to be done to them, and closed again.

`chmod -R a-w` keeps results from being changed by mistake. But what moves a folder changes its `..`, and so
needs the right to write it. Runs as the owner; whoever is stopped meanwhile leaves the folder open, and what
was begun can be done again.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path


def is_closed(path: Path) -> bool:
    """Whether it is a folder that even its owner may not write."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(mode) and not mode & stat.S_IWUSR


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[None]:
    """Its owner may write it meanwhile."""
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
    """Rename, also a folder that is closed; it is closed again wherever it is then."""
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
    """The folder and those it lies in, also where one that is there is closed."""
    if not path.is_dir():
        make_folders(path.parent)
        with opened(path.parent):
            path.mkdir(exist_ok=True)
