"""Putting a file where its verdict belongs; after a crash it can be done again without a second copy.

A file that is no longer in .work/ has been moved: the journal is written afterwards. The text beside a
refused file gets its name by a link, which never replaces anything: who has that name has the file's, too.
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
    """Move the file to processed/<day>/<name>.<job>."""
    day = entry.day or today()
    with dropfolder.inside(folder.processed, day, make=0o755) as place:
        target = _free(place, f"{os.fsdecode(entry.name)}.{entry.job_id}", entry.token)
        _move(renames.Spot(folder.work, work_name), renames.Spot(place, target))
    done = msgspec.structs.replace(
        entry, state=entries.PROCESSED, day=day, target=os.fsencode(target), letter=""
    )
    return journal.put(done)


def failed(
    journal: entries.Journal, folder: dropfolder.Folder, entry: entries.Entry, work_name: str, *, mode: int
) -> entries.Entry:
    """Write the letter and move the file to failed/<day>/<name>."""
    day = entry.day or today()
    source = renames.Spot(folder.work, work_name)
    with dropfolder.inside(folder.failed, day, make=0o755) as place:
        target = _with_letter(place, entry, mode)
        _move(source, renames.Spot(place, target))
    done = msgspec.structs.replace(entry, state=entries.FAILED, day=day, target=os.fsencode(target))
    return journal.put(done)


def _move(source: renames.Spot, target: renames.Spot) -> None:
    there = renames.look(source)
    if there is not None:
        renames.move(source, target, inode=there.st_ino)


def _free(place: int, name: str, token: str) -> str:
    """The name, or the first of its likes that nobody has."""
    for candidate in _alike(name, token):
        if renames.look(renames.Spot(place, candidate)) is None:
            return candidate
    raise FileExistsError(name)


def _alike(name: str, token: str) -> Iterator[str]:
    """Numbered ones first; whoever sends the same file all day gets a name that nobody else can have."""
    yield name
    yield from (f"{name}.{number}" for number in range(2, _MOST_ALIKE))
    yield f"{name}.{token}"


def _with_letter(place: int, entry: entries.Entry, mode: int) -> str:
    """Write the letter under the first free name; the file's name there."""
    content = entry.letter.encode(errors="replace")
    draft = f".{entry.token}"
    _write(place, draft, content, uid=entry.uid, mode=0o600 | (mode & 0o044))
    try:
        for target in _alike(_short(filenames.shown(os.fsdecode(entry.name))), entry.token):
            if _reserve(place, draft, target, content):
                return target
        raise FileExistsError(entry.name)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=place)


def _short(name: str) -> str:
    """Room for the ending, whatever the name was; no half a character, which not every NAS takes."""
    return os.fsencode(name)[:200].decode(errors="ignore")


def _reserve(place: int, draft: str, target: str, content: bytes) -> bool:
    """Give the draft this target's letter name; True also when an earlier attempt of ours has done so.

    It has the name only if the target was free before: an attempt that was cut off has taken nobody's place.
    """
    letter = target + wellknown.ERROR_SUFFIX
    if _has(place, letter, content):
        return True
    if renames.look(renames.Spot(place, target)) is not None:
        return False
    try:
        os.link(draft, letter, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=False)
    except FileExistsError:  # another's, or our own whose answer got lost
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
    """Whether that is a file with this content: refused pipes and links lie here, too, under users' names."""
    there = renames.look(renames.Spot(place, name))
    if there is None or not stat.S_ISREG(there.st_mode):
        return False
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(len(content) + 1) == content
