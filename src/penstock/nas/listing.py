"""What lies in the drop folder at one moment."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

import msgspec

from penstock import errors
from penstock.nas import dropfolder


class Sign(msgspec.Struct, frozen=True):
    """What changes when a file is written or replaced; the NAS's times are compared with each other only."""

    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Sign:
        return cls(found.st_ino, found.st_size, found.st_mtime_ns)


class Sight(msgspec.Struct, frozen=True):
    """One file: in which folder below submit/ (empty for submit/ itself), its name, its sign, its owner."""

    folder: str
    name: str
    sign: Sign
    uid: int
    regular: bool = True


class Listing(msgspec.Struct, frozen=True):
    """Everything there: files that count, inodes of those that do not, and folders nobody asked for."""

    sights: tuple[Sight, ...]
    hidden: frozenset[int] = frozenset()
    folders: tuple[str, ...] = ()


def take(folder: dropfolder.Folder, *, hidden: Callable[[str], bool], user_folders: bool) -> Listing:
    """List submit/ and, if the site wants them, the users' folders in it."""
    sights: list[Sight] = []
    unseen: set[int] = set()
    folders: list[str] = []
    for entry in os.scandir(folder.submit):
        if hidden(entry.name):
            unseen.add(entry.inode())
        elif entry.is_dir(follow_symlinks=False):
            folders.append(entry.name)
        else:
            sights.extend(_sight("", entry))
    for name in folders if user_folders else ():
        sights.extend(_below(folder, name, hidden, unseen))
    return Listing(tuple(sights), frozenset(unseen), tuple(folders))


def _below(
    folder: dropfolder.Folder, name: str, hidden: Callable[[str], bool], unseen: set[int]
) -> Iterator[Sight]:
    try:
        with dropfolder.inside(folder.submit, name) as inner:
            for entry in os.scandir(inner):
                if hidden(entry.name):
                    unseen.add(entry.inode())
                elif not entry.is_dir(follow_symlinks=False):
                    yield from _sight(name, entry)
    except errors.NasUnavailable:
        return  # removed, or made a link, since it was listed


def _sight(folder: str, entry: os.DirEntry[str]) -> Iterator[Sight]:
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return  # deleted since it was listed
    if not stat.S_ISDIR(found.st_mode):
        yield Sight(folder, entry.name, Sign.of(found), found.st_uid, stat.S_ISREG(found.st_mode))
