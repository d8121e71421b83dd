"""Which files of a working directory a #K8S_OUTPUTS pattern means.

As a shell has it: `*`, `?` and `[…]` within a name, hidden names only when the pattern begins with a dot; and
`**` for any number of folders, in which links are not followed, so that no ring of links is walked for ever.
What cannot be read is left out, as in a shell; but a storage that does not answer has not said that nothing
is there, so its errors are raised.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Iterator

_MAGIC = re.compile(r"[*?\[]")
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG)
"""Answers that will be the same tomorrow."""


def matches(root: str, pattern: str) -> Iterator[str]:
    """Ways from `root` that fit, each once; files, folders and links alike."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    seen: set[str] = set()
    for found in _match(root, "", parts) if parts and ".." not in parts else ():
        if found not in seen:
            seen.add(found)
            yield found


def _match(root: str, within: str, parts: list[str]) -> Iterator[str]:
    first, rest = parts[0], parts[1:]
    if first == "**":
        yield from _match(root, within, rest or ["*"])
        for name in _names(root, within, folders_only=True):
            if not name.startswith("."):
                yield from _match(root, f"{within}{name}/", parts)
        return
    for name in _fitting(root, within, first):
        if not rest:
            yield within + name
        elif stat.S_ISDIR(_mode(f"{root}/{within}{name}", follow_links=True)):
            yield from _match(root, f"{within}{name}/", rest)


def _fitting(root: str, within: str, part: str) -> Iterator[str]:
    if not _MAGIC.search(part):
        if _mode(f"{root}/{within}{part}", follow_links=False):
            yield part
        return
    fits = re.compile(fnmatch.translate(part)).match
    for name in _names(root, within, folders_only=False):
        if fits(name) and (part.startswith(".") or not name.startswith(".")):
            yield name


def _names(root: str, within: str, *, folders_only: bool) -> list[str]:
    """Sorted; nothing of a folder that cannot be read, as in a shell."""
    try:
        with os.scandir(f"{root}/{within}") as entries:
            return sorted(
                entry.name for entry in entries if not folders_only or entry.is_dir(follow_symlinks=False)
            )
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return []


def _mode(path: str, *, follow_links: bool) -> int:
    """Of what is there; 0 when nothing is."""
    try:
        return (os.stat if follow_links else os.lstat)(path).st_mode
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return 0
