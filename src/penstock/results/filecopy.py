"""Copies files atomically, never through a symbolic link, never from a device.

Large files are hard-linked where possible, which is free but shares later changes; others are cloned if the
file system supports that, and copied otherwise.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from penstock.nas import atomic

UNFINISHED = ".penstock-copying-"  # prefix of temporary files
_CHUNK = 1 << 20
_FICLONE = 0x40049409
_UNLINKABLE = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)


class NotAFile(Exception):
    """A link, a device or a folder."""


def open_file(path: Path | bytes) -> int:
    """Open a regular file for reading. Raises NotAFile, also if it was replaced a moment ago."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise NotAFile(os.fsdecode(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotAFile(os.fsdecode(path))
    return descriptor


def copy(source: Path | bytes, target: Path, *, at_most: int | None = None) -> int:
    """Copy content, mode and times; returns the number of bytes left out."""
    reading = open_file(source)
    try:
        size = os.fstat(reading).st_size
        wanted = size if at_most is None else min(size, at_most)
        with atomic.replacing(target, prefix=UNFINISHED) as writing:
            _clone_or_copy(reading, writing, wanted)
            before = os.fstat(reading)
            os.fchmod(writing, 0o600 | (before.st_mode & 0o755))
            os.utime(writing, ns=(before.st_atime_ns, before.st_mtime_ns))
            os.fsync(writing)
        return size - wanted
    finally:
        os.close(reading)


def _clone_or_copy(reading: int, writing: int, size: int) -> None:
    """Copy no more than the initial size: a growing file must not take forever."""
    if size == os.fstat(reading).st_size:
        with contextlib.suppress(OSError):  # the file system cannot clone
            fcntl.ioctl(writing, _FICLONE, reading)
            return
    left = size
    while left and (chunk := os.read(reading, min(left, _CHUNK))):
        left -= len(chunk)
        view = memoryview(chunk)
        while view:
            view = view[os.write(writing, view) :]


def link_or_copy(source: Path, target: Path, *, link_from: int = 0) -> None:
    """Hard-link a file of at least `link_from` bytes if possible; copy it otherwise."""
    before = source.lstat()
    if not stat.S_ISREG(before.st_mode):
        raise NotAFile(str(source))
    if before.st_size < link_from or not _linked(source, target):
        copy(source, target)


def _linked(source: Path, target: Path) -> bool:
    """Whether it was linked; links are not followed."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        return target.lstat().st_ino == source.lstat().st_ino
    except OSError as error:
        if error.errno in _UNLINKABLE:
            return False
        raise
    return True


def exists(path: Path) -> bool:
    """Like os.path.lexists, but an error of the storage is raised: it does not mean that nothing is there."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_same(source: Path, target: Path) -> bool:
    """Whether the target equals the source; size and mtime, by the second, only save reading.

    Different files of one name often have the same size and second, and not every server keeps fractions.
    """
    here = source.lstat()
    try:
        there = target.lstat()
    except FileNotFoundError:
        return False
    if os.path.samestat(here, there):
        return True
    close = abs(there.st_mtime - here.st_mtime) < 1
    alike = stat.S_ISREG(there.st_mode) and there.st_size == here.st_size and close
    return alike and _same_content(source, target)


def _same_content(source: Path, target: Path) -> bool:
    """False if the target cannot be read."""
    try:
        there = open_file(target)
    except (PermissionError, NotAFile):
        return False
    with os.fdopen(there, "rb") as one, os.fdopen(open_file(source), "rb") as other:
        while chunk := one.read(_CHUNK):
            if chunk != other.read(_CHUNK):
                return False
        return not other.read(1)
