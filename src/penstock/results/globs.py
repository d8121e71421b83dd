"""Expands a #K8S_OUTPUTS pattern in a working directory.

As in a shell: `*`, `?` and `[…]` match within a name, and hidden names only if the pattern begins with a dot.
`**` matches any number of folders and does not follow links, which could form a loop. Unreadable folders are
skipped, as in a shell; errors of the storage are raised, because they do not mean that a file is missing.
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
"""Errors that a retry does not change."""


def matches(root: str, pattern: str) -> Iterator[str]:
    """Relative paths that match, each once: files, folders and links."""
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
    for name in _matching_names(root, within, first):
        if not rest:
            yield within + name
        elif stat.S_ISDIR(_mode(f"{root}/{within}{name}", follow_links=True)):
            yield from _match(root, f"{within}{name}/", rest)


def _matching_names(root: str, within: str, part: str) -> Iterator[str]:
    if not _MAGIC.search(part):
        if _mode(f"{root}/{within}{part}", follow_links=False):
            yield part
        return
    matches_part = re.compile(fnmatch.translate(part)).match
    for name in _names(root, within, folders_only=False):
        if matches_part(name) and (part.startswith(".") or not name.startswith(".")):
            yield name


def _names(root: str, within: str, *, folders_only: bool) -> list[str]:
    """Sorted names; none if the folder cannot be read."""
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
    """st_mode; 0 if nothing is there."""
    try:
        return (os.stat if follow_links else os.lstat)(path).st_mode
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return 0
