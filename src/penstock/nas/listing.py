"""One listing of the drop folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping

import msgspec

from penstock import errors
from penstock.nas import dropfolder


class Stamp(msgspec.Struct, frozen=True):
    """Changes when a file is written or replaced; times of the NAS are compared only with each other."""

    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        return cls(found.st_ino, found.st_size, found.st_mtime_ns)


class FileInfo(msgspec.Struct, frozen=True):
    folder: str
    """Below submit/; empty for submit/ itself."""
    name: str
    stamp: Stamp
    uid: int
    regular: bool = True
    changed_ns: int = 0
    """ctime: copying programs can set mtime to anything, but not this."""


class Subfolder(msgspec.Struct, frozen=True):
    name: str
    uid: int


class Listing(msgspec.Struct, frozen=True):
    files: tuple[FileInfo, ...]
    hidden: frozenset[Stamp] = frozenset()
    """Of temporary files: one that gets its final name by a rename is complete."""
    folders: tuple[Subfolder, ...] = ()
    broken: Mapping[str, str] = {}
    """Errors of entries that could not be read, by name."""


def take(folder: dropfolder.Folder, *, hidden: Callable[[str], bool], user_folders: bool) -> Listing:
    """List submit/ and, if the site has them, the users' folders in it."""
    files: list[FileInfo] = []
    unseen: set[Stamp] = set()
    folders: list[Subfolder] = []
    broken: dict[str, str] = {}
    for entry in os.scandir(folder.submit):
        try:
            if hidden(entry.name):
                unseen.update(_signs(entry))
            elif entry.is_dir(follow_symlinks=False):
                folders.append(Subfolder(entry.name, entry.stat(follow_symlinks=False).st_uid))
            else:
                files.extend(_info("", entry))
        except OSError as error:
            broken[entry.name] = error.strerror or str(error)
    for name in (subfolder.name for subfolder in folders) if user_folders else ():
        try:
            files.extend(_below(folder, name, hidden, unseen))
        except OSError as error:
            broken[name] = error.strerror or str(error)
    return Listing(tuple(files), frozenset(unseen), tuple(folders), broken)


def _below(
    folder: dropfolder.Folder, name: str, hidden: Callable[[str], bool], unseen: set[Stamp]
) -> Iterator[FileInfo]:
    try:
        with dropfolder.inside(folder.submit, name) as inner:
            for entry in os.scandir(inner):
                if hidden(entry.name):
                    unseen.update(_signs(entry))
                elif not entry.is_dir(follow_symlinks=False):
                    yield from _info(name, entry)
    except errors.NasUnavailable:
        return  # removed, or replaced by a link, since it was listed


def _signs(entry: os.DirEntry[str]) -> Iterator[Stamp]:
    if not entry.is_dir(follow_symlinks=False):
        yield from (seen.stamp for seen in _info("", entry))


def _info(folder: str, entry: os.DirEntry[str]) -> Iterator[FileInfo]:
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return  # deleted since it was listed
    if not stat.S_ISDIR(found.st_mode):
        regular = stat.S_ISREG(found.st_mode)
        yield FileInfo(folder, entry.name, Stamp.of(found), found.st_uid, regular, found.st_ctime_ns)
