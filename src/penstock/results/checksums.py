"""checksums.txt in the format of sha256sum, for every regular file of a folder except itself.

Names are bytes. As in GNU coreutils, a name with a line break or a backslash is escaped, and its line begins
with a backslash. Symbolic links have no checksum: their targets are not part of the results.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from penstock import wellknown

NAME = "checksums.txt"
_NOT_RESULTS = (NAME.encode(), wellknown.OUTPUTS_COPIED.encode())
_CHUNK = 1 << 20
_ESCAPES = {b"\\": b"\\\\", b"\n": b"\\n", b"\r": b"\\r"}
_PLAIN = {escaped: plain for plain, escaped in _ESCAPES.items()}
_LINE = re.compile(rb"(\\?)([0-9a-f]{64}) [ *](.+)", re.DOTALL)


class Verdict(msgspec.Struct, frozen=True):
    """The files of a folder compared with its checksums; names as text."""

    good: int = 0
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        return not (self.changed or self.missing or self.unlisted)


def line(digest: str, name: bytes) -> bytes:
    reachable = b"./-" if name == b"-" else name  # a lone dash would be standard input
    escaped = re.sub(rb"[\\\n\r]", lambda match: _ESCAPES[match[0]], reachable)
    return (b"\\" if escaped != reachable else b"") + digest.encode() + b"  " + escaped + b"\n"


def parse(text: bytes) -> dict[bytes, str]:
    """Digests by file name; lines that are not digests are skipped."""
    found: dict[bytes, str] = {}
    for entry in text.split(b"\n"):
        match = _LINE.fullmatch(entry)
        if match:
            name = match[3]
            if match[1]:
                name = re.sub(rb"\\[\\nr]", lambda escape: _PLAIN[escape[0]], name)
            found[b"-" if name == b"./-" else name] = match[2].decode()
    return found


def of_folder(folder: Path) -> bytes:
    """The text for all readable files of the folder."""
    root = os.fsencode(folder)
    lines = []
    for name in files(folder):
        with contextlib.suppress(PermissionError):
            lines.append(line(digest_of(os.path.join(root, name)), name))  # noqa: PTH118  # bytes
    return b"".join(lines)


def verify(folder: Path) -> Verdict:
    """Compare. Raises FileNotFoundError if there is no checksums.txt."""
    expected = parse((folder / NAME).read_bytes())
    there = set(files(folder))
    root = os.fsencode(folder)
    good, changed = 0, []
    for name in sorted(expected.keys() & there):
        if digest_of(os.path.join(root, name)) == expected[name]:  # noqa: PTH118  # bytes
            good += 1
        else:
            changed.append(name)
    return Verdict(
        good=good,
        changed=_shown(changed),
        missing=_shown(expected.keys() - there),
        unlisted=_shown(there - expected.keys()),
    )


def files(folder: Path) -> Iterator[bytes]:
    """Relative paths of regular files below the folder, sorted, without checksums.txt."""
    pending = [b""]
    found: list[bytes] = []
    while pending:
        within = pending.pop()
        with contextlib.suppress(PermissionError):
            for name, is_folder in _entries(os.fsencode(folder), within):
                if is_folder:
                    pending.append(name + b"/")
                elif name not in _NOT_RESULTS:
                    found.append(name)
    return iter(sorted(found))


def _entries(root: bytes, within: bytes) -> Iterator[tuple[bytes, bool]]:
    """Names of regular files and folders; True for a folder."""
    with os.scandir(os.path.join(root, within)) as entries:  # noqa: PTH118  # bytes
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
                yield within + entry.name, entry.is_dir(follow_symlinks=False)


def digest_of(path: bytes) -> str:
    """SHA-256 of a regular file. Raises OSError for links and devices."""
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{os.fsdecode(path)} is no longer a regular file")
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _shown(names: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(sorted(name.decode(errors="replace") for name in names))
