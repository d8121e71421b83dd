"""A file's content to another place: whole or not at all, never through a link, never from a device.

A large file is linked where that is possible, which costs nothing but shares later changes; all others are
cloned where the file system can do that, and else copied.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from pathlib import Path

UNFINISHED = ".penstock-copying-"  # how names of files begin that are not whole yet
_CHUNK = 1 << 20
_FICLONE = 0x40049409
_UNLINKABLE = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)


class NotAFile(Exception):
    """A link, a device, a folder: nothing with content of its own."""


def open_file(path: Path | bytes) -> int:
    """A descriptor to read from; NotAFile when it is none, also if it was one a moment ago."""
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
    """Copy content and time; how many bytes were left out."""
    reading = open_file(source)
    try:
        size = os.fstat(reading).st_size
        _write_whole(reading, target, size if at_most is None else min(size, at_most))
        return 0 if at_most is None else max(size - at_most, 0)
    finally:
        os.close(reading)


def _write_whole(reading: int, target: Path, size: int) -> None:
    writing, temporary = tempfile.mkstemp(dir=target.parent, prefix=UNFINISHED)
    try:
        try:
            _clone_or_copy(reading, writing, size)
            before = os.fstat(reading)
            os.fchmod(writing, 0o600 | (before.st_mode & 0o755))
            os.utime(writing, ns=(before.st_atime_ns, before.st_mtime_ns))
            os.fsync(writing)
        finally:
            os.close(writing)
        Path(temporary).replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise


def _clone_or_copy(reading: int, writing: int, size: int) -> None:
    """No more than it was at the beginning: a file that grows must not keep us."""
    if size == os.fstat(reading).st_size and clone(reading, writing):
        return
    left = size
    while left and (chunk := os.read(reading, min(left, _CHUNK))):
        left -= len(chunk)
        view = memoryview(chunk)
        while view:
            view = view[os.write(writing, view) :]


def clone(reading: int, writing: int) -> bool:
    """Share the blocks, if the file system can."""
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError:
        return False
    return True


def link_or_copy(source: Path, target: Path, *, link_from: int = 0) -> None:
    """From that size on a link where neither a clone nor anything else is as cheap; a copy below."""
    before = source.lstat()
    if not stat.S_ISREG(before.st_mode):
        raise NotAFile(str(source))
    if before.st_size < link_from or not _linked(source, target):
        copy(source, target)


def _linked(source: Path, target: Path) -> bool:
    """A link to the file itself, never to what a link leads to."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        return target.lstat().st_ino == source.lstat().st_ino
    except OSError as error:
        if error.errno in _UNLINKABLE:
            return False
        raise
    return True


def is_there(path: Path) -> bool:
    """Whether anything has that name; a storage that does not answer, for which os.path.lexists says no, may
    not be taken for an empty one.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_same(source: Path, target: Path) -> bool:
    """Whether the target is what a copy of the source would be.

    Size and time only spare us reading: files of one name are often of one size and written in one second.
    Seconds, for not every server keeps more.
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
    """Of a target that cannot be read nobody knows, so it is not."""
    try:
        there = open_file(target)
    except (PermissionError, NotAFile):
        return False
    with os.fdopen(there, "rb") as one, os.fdopen(open_file(source), "rb") as other:
        while chunk := one.read(_CHUNK):
            if chunk != other.read(_CHUNK):
                return False
        return not other.read(1)
