"""Files with names of nodes: --nodefile, SLURM_HOSTFILE, and a --nodelist or --exclude with a slash."""

from __future__ import annotations

import re
from typing import Final

_COMMENT: Final = re.compile(rb"(?<!\\)#.*")
_REPEATED: Final = re.compile(rb"([^*]*)\*\s*(\d{1,6})")
_MOST_NAMES: Final = 100_000  # far above the tasks of a job: it bounds our own work


class Invalid(Exception):
    """srun's message about the file, without its own name."""


def names(content: bytes, file: bytes, enough: int | None) -> bytes:
    """The names as for --nodelist, in order, repeated ones too. Reading ends after the line with the last one
    of `enough`, and fewer are an error.

    A slash is refused: srun would take the names for a file on its own host.
    """
    found: list[bytes] = []
    for number, text in enumerate(content.split(b"\n"), 1):
        line = _COMMENT.sub(b"", text).replace(b"\\#", b"#")
        if not line:
            continue
        if not line[:1].isalnum() or b"/" in line:
            raise Invalid(b"Invalid hostfile %b contents on line %d" % (file, number))
        for name in filter(None, line.split(b",")):
            found += _repeated(name)
        if len(found) > _MOST_NAMES:
            raise Invalid(b"Hostlist is too long for the allocate RPC!")
        if len(found) == enough:
            break
    if not found:
        raise Invalid(b"Hostlist is empty!")
    if enough is not None and len(found) < enough:
        raise Invalid(b"Too few NodeNames in Slurm Hostfile")
    return b",".join(found)


def _repeated(name: bytes) -> list[bytes]:
    """The name; name*3 is three of it."""
    match = _REPEATED.match(name)
    count = int(match[2]) if match else 0
    return [match[1]] * count if match and count else [name]
