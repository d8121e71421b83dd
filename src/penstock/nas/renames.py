"""Renames over NFS, where the server's answer may get lost.

A client that misses the answer repeats the request, and the server, which has already renamed the file,
replies ENOENT. So after an error we check whether the file is at the target.
"""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

log = logging.getLogger(__name__)


class Spot(NamedTuple):
    """A name in an open directory: no part of the path to it can be swapped for a link."""

    directory: int
    name: str


def move(source: Spot, target: Spot, *, inode: int = 0) -> bool:
    """Rename; False if the source does not exist.

    After an error, only `inode` at the target counts as moved; without it any file does, for target names
    that nobody else can choose.
    """
    try:
        os.rename(source.name, target.name, src_dir_fd=source.directory, dst_dir_fd=target.directory)
    except OSError as error:
        if _arrived(source, target, inode):
            log.warning("the rename of %r failed with %r, but was done", source.name, error.strerror)
            return True
        if isinstance(error, FileNotFoundError):
            return False
        raise
    return True


def look(spot: Spot) -> os.stat_result | None:
    """lstat(2); None if there is nothing."""
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
