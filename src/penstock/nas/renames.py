"""Renaming on a file system whose answers may get lost.

An NFS client that has not heard the answer asks again, and the server, which has done it already, says that
there is no such file. So after an error we look whether the thing is where it should go.
"""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

log = logging.getLogger(__name__)


class Spot(NamedTuple):
    """A name in an open directory: nothing on the way to it can be swapped for a link."""

    directory: int
    name: str


def move(source: Spot, target: Spot, *, inode: int = 0) -> bool:
    """Rename; False when there is nothing to rename.

    With `inode`, only that file at the target counts as moved; without it, any, for names that nobody else
    can have chosen.
    """
    try:
        os.rename(source.name, target.name, src_dir_fd=source.directory, dst_dir_fd=target.directory)
    except OSError as error:
        if _arrived(source, target, inode):
            log.warning("renaming %r was answered %r but is done", source.name, error.strerror)
            return True
        if isinstance(error, FileNotFoundError):
            return False
        raise
    return True


def look(spot: Spot) -> os.stat_result | None:
    """What is there itself, not what it points to; None when there is nothing."""
    try:
        return os.stat(spot.name, dir_fd=spot.directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _arrived(source: Spot, target: Spot, inode: int) -> bool:
    try:
        there = look(target)
        return there is not None and inode in (0, there.st_ino) and look(source) is None
    except OSError:
        return False
