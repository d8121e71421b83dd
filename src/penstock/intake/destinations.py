"""Moves a claimed file to processed/ or failed/. Repeating a move after a crash makes no second copy.

A file that is no longer in .work/ has been moved: the journal is written afterwards. The error text of a
refused file gets its name by link(2), which never replaces anything and so also reserves the file's name.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import stat
from collections.abc import Iterator

import msgspec

from penstock import wellknown
from penstock.intake import filenames
from penstock.journal import entries
from penstock.nas import dropfolder, renames

_MOST_ALIKE = 100


def today() -> str:
    return datetime.datetime.now().date().isoformat()


def processed(
    journal: entries.Journal, folder: dropfolder.Folder, entry: entries.Entry, work_name: str
) -> entries.Entry:
    day = entry.day or today()
    with dropfolder.inside(folder.processed, day, make=0o755) as place:
        target = _free_name(place, f"{os.fsdecode(entry.name)}.{entry.job_id}", entry.token)
        _move(renames.Spot(folder.work, work_name), renames.Spot(place, target))
    changes = {"state": entries.PROCESSED, "day": day, "target": os.fsencode(target), "letter": ""}
    return journal.put(msgspec.structs.replace(entry, **changes))


def failed(
    journal: entries.Journal, folder: dropfolder.Folder, entry: entries.Entry, work_name: str, *, mode: int
) -> entries.Entry:
    day = entry.day or today()
    with dropfolder.inside(folder.failed, day, make=0o755) as place:
        target = _write_letter(place, entry, mode)
        _move(renames.Spot(folder.work, work_name), renames.Spot(place, target))
    done = msgspec.structs.replace(entry, state=entries.FAILED, day=day, target=os.fsencode(target))
    return journal.put(done)


def _move(source: renames.Spot, target: renames.Spot) -> None:
    there = renames.look(source)
    if there is not None:
        renames.move(source, target, inode=there.st_ino)


def _free_name(place: int, name: str, token: str) -> str:
    for candidate in _candidates(name, token):
        if renames.look(renames.Spot(place, candidate)) is None:
            return candidate
    raise FileExistsError(name)


def _candidates(name: str, token: str) -> Iterator[str]:
    """The name, then numbered ones; the last, with the token, is always free."""
    yield name
    yield from (f"{name}.{number}" for number in range(2, _MOST_ALIKE))
    yield f"{name}.{token}"


def _write_letter(place: int, entry: entries.Entry, mode: int) -> str:
    """Write the error text beside the first free file name; returns that name."""
    content = entry.letter.encode(errors="replace")
    draft = f".{entry.token}"
    _write(place, draft, content, uid=entry.uid, mode=0o600 | (mode & 0o044))
    # Cut to leave room for the suffix, at a whole character: not every NAS accepts a part of one.
    name = os.fsencode(filenames.shown(os.fsdecode(entry.name)))[:200].decode(errors="ignore")
    try:
        for target in _candidates(name, entry.token):
            if _reserve(place, draft, target, content):
                return target
        raise FileExistsError(entry.name)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=place)


def _reserve(place: int, draft: str, target: str, content: bytes) -> bool:
    """Link the draft as error text of a free target; True also if an interrupted attempt has done so."""
    letter = target + wellknown.ERROR_SUFFIX
    if _has(place, letter, content):
        return True
    if renames.look(renames.Spot(place, target)) is not None:
        return False
    try:
        os.link(draft, letter, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=False)
    except FileExistsError:  # another file's, or our own link whose answer got lost
        return _has(place, letter, content)
    return True


def _write(place: int, name: str, content: bytes, *, uid: int, mode: int) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600, dir_fd=place)
    with os.fdopen(descriptor, "wb") as stream:
        os.fchown(descriptor, uid, -1)
        os.fchmod(descriptor, mode)
        stream.write(content)
        stream.flush()
        os.fsync(descriptor)


def _has(place: int, name: str, content: bytes) -> bool:
    """Whether it is a regular file with this content: failed/ also holds refused pipes and links."""
    there = renames.look(renames.Spot(place, name))
    if there is None or not stat.S_ISREG(there.st_mode):
        return False
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(len(content) + 1) == content
