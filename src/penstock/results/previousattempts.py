"""Merges the results of earlier attempts into the folder of the next one.

They are hard-linked before the new folder replaces the old one, so they are complete at any time. Afterwards
the old folder holds only duplicates and what its owner has put there meanwhile: duplicates are removed,
everything else is moved. Runs as the owner.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from penstock.nas import atomic
from penstock.results import checksums, filecopy, identity, outputs, protected
from penstock.results import summary as summarising

_ATTEMPT = re.compile(r"attempt-(\d{1,9})")
_EARLIER = re.compile(rb"attempt-\d+/")


def link_earlier(previous: Path, folder: Path, *, number: int) -> None:
    own = folder / f"attempt-{number}"
    own.mkdir(exist_ok=True)
    for entry, target in _places(previous, folder, own):
        if _is_listing(entry):
            atomic.write(target, _own_lines(entry))
        else:
            _link_tree(entry, target)


def _places(previous: Path, folder: Path, own: Path) -> Iterator[tuple[Path, Path]]:
    """Each entry and its new place: still earlier attempts move up one level, the summary comes last."""
    entries = sorted(previous.iterdir(), key=lambda path: (path.name == summarising.JSON_NAME, path.name))
    for entry in entries:
        earlier = _ATTEMPT.fullmatch(entry.name) and _is_folder(entry)
        yield entry, (folder if earlier else own) / entry.name


def _is_listing(path: Path) -> bool:
    return path.name == checksums.NAME and path.is_file() and not path.is_symlink()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _own_lines(path: Path) -> bytes:
    """checksums.txt without the lines of earlier attempts."""
    with os.fdopen(filecopy.open_file(path), "rb") as stream:
        listed = checksums.parse(stream.read())
    return b"".join(
        checksums.line(digest, name) for name, digest in listed.items() if not _EARLIER.match(name)
    )


def _link_tree(source: Path, target: Path) -> None:
    if source.is_symlink():
        if not target.is_symlink():
            target.symlink_to(source.readlink())
    elif source.is_dir():
        target.mkdir(exist_ok=True)
        with protected.opened(target):
            for entry in sorted(source.iterdir()):
                _link_tree(entry, target / entry.name)
        target.chmod(stat.S_IMODE(source.stat().st_mode))
    elif source.is_file():
        filecopy.link_or_copy(source, target)


def clear(old: Path, folder: Path) -> None:
    """Empty `old`, which `folder` has replaced; files that only `old` has are moved to `folder`."""
    own = folder / f"attempt-{_number(old, folder)}"
    protected.make_folders(own)
    with protected.opened(old):
        for entry, target in _places(old, folder, own):
            if _is_listing(entry):
                entry.unlink()  # link_earlier has written a new one
            else:
                _move_tree(entry, target)


def _number(old: Path, folder: Path) -> int:
    """The attempt in `old`; the last one in `folder` if the owner has removed the summary."""
    there = identity.read(old).restarts
    if (folder / f"attempt-{there}").is_dir():
        return there
    found = (_ATTEMPT.fullmatch(path.name) for path in folder.iterdir())
    return max((int(match[1]) for match in found if match), default=0)


def _move_tree(source: Path, target: Path) -> None:
    if _is_folder(source) and _is_folder(target):
        with protected.opened(source):
            for entry in sorted(source.iterdir()):
                _move_tree(entry, target / entry.name)
        source.rmdir()
    elif _is_duplicate(source, target):
        source.unlink()
    else:
        with protected.opened(target.parent):
            protected.move(source, outputs.free_name(target, outputs.Notes()))


def _is_duplicate(source: Path, target: Path) -> bool:
    if source.is_symlink():
        return target.is_symlink() and target.readlink() == source.readlink()
    return source.is_file() and filecopy.is_same(source, target)
