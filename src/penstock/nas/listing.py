"""What lies in the drop folder at one moment."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping

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
    changed_ns: int = 0
    """When the NAS last saw it change; a program that copies can set mtime to anything, and this never."""


class Left(msgspec.Struct, frozen=True):
    """A folder in submit/, and whose it is."""

    name: str
    uid: int


class Listing(msgspec.Struct, frozen=True):
    """Everything there: files that count, signs of those that do not, and folders nobody asked for; and what
    could not be looked at, with the reason.
    """

    sights: tuple[Sight, ...]
    hidden: frozenset[Sign] = frozenset()
    folders: tuple[Left, ...] = ()
    broken: Mapping[str, str] = {}


def take(folder: dropfolder.Folder, *, hidden: Callable[[str], bool], user_folders: bool) -> Listing:
    """List submit/ and, if the site wants it, users' folders in it; one file's trouble is no other's."""
    sights: list[Sight] = []
    unseen: set[Sign] = set()
    folders: list[Left] = []
    broken: dict[str, str] = {}
    for entry in os.scandir(folder.submit):
        try:
            if hidden(entry.name):
                unseen.update(_signs(entry))
            elif entry.is_dir(follow_symlinks=False):
                folders.append(Left(entry.name, entry.stat(follow_symlinks=False).st_uid))
            else:
                sights.extend(_sight("", entry))
        except OSError as error:
            broken[entry.name] = error.strerror or str(error)
    for name in (left.name for left in folders) if user_folders else ():
        try:
            sights.extend(_below(folder, name, hidden, unseen))
        except OSError as error:
            broken[name] = error.strerror or str(error)
    return Listing(tuple(sights), frozenset(unseen), tuple(folders), broken)


def _below(
    folder: dropfolder.Folder, name: str, hidden: Callable[[str], bool], unseen: set[Sign]
) -> Iterator[Sight]:
    try:
        with dropfolder.inside(folder.submit, name) as inner:
            for entry in os.scandir(inner):
                if hidden(entry.name):
                    unseen.update(_signs(entry))
                elif not entry.is_dir(follow_symlinks=False):
                    yield from _sight(name, entry)
    except errors.NasUnavailable:
        return  # removed, or made a link, since it was listed


def _signs(entry: os.DirEntry[str]) -> Iterator[Sign]:
    if not entry.is_dir(follow_symlinks=False):
        yield from (seen.sign for seen in _sight("", entry))


def _sight(folder: str, entry: os.DirEntry[str]) -> Iterator[Sight]:
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return  # deleted since it was listed
    if not stat.S_ISDIR(found.st_mode):
        regular = stat.S_ISREG(found.st_mode)
        yield Sight(folder, entry.name, Sign.of(found), found.st_uid, regular, found.st_ctime_ns)
