"""Which files of a working directory a #K8S_OUTPUTS pattern means.

As a shell has it: `*`, `?` and `[…]` within a name, hidden names only when the pattern begins with a dot; and
`**` for any number of folders, in which links are not followed, so that no ring of links is walked for ever.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator

_MAGIC = re.compile(r"[*?\[]")


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
        elif os.path.isdir(f"{root}/{within}{name}"):  # noqa: PTH112  # names need not be text
            yield from _match(root, f"{within}{name}/", rest)


def _fitting(root: str, within: str, part: str) -> Iterator[str]:
    if not _MAGIC.search(part):
        if os.path.lexists(f"{root}/{within}{part}"):
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
    except OSError:
        return []
