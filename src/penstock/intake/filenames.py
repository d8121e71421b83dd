"""File names: which belong to editors and copying programs, and which can be a job's."""

from __future__ import annotations

import os
import re

from penstock import wellknown

LONGEST = 200  # bytes: the claimed file's name has the token in front, the error's a word behind
_COPIES = (".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload", ".download", ":Zone.Identifier")
_EDITORS = ("~", ".swp", ".swo", ".swx", ".bak", ".lock")
_WHOLE = frozenset(("4913", "Thumbs.db", "desktop.ini", "lost+found"))  # 4913 is vim's test for a folder
_TEMPORARY = re.compile(r"\.|~\$|#.*#$|.*\.tmp\.[0-9a-f]+$", re.DOTALL)


def is_hidden(name: str) -> bool:
    """Whether the name is no job's: hidden, a backup, or of a copy under way."""
    return bool(_TEMPORARY.match(name)) or name.endswith((*_COPIES, *_EDITORS)) or name in _WHOLE


def marked(name: str) -> str:
    """The name of the file that this marker (<name>.done) declares complete; empty for all other names."""
    return name.removesuffix(wellknown.DONE_SUFFIX) if name.endswith(wellknown.DONE_SUFFIX) else ""


def problem(name: str) -> str:
    """Why no job can be called so; empty when it can."""
    try:
        raw = os.fsencode(name)
        raw.decode()
    except UnicodeError:
        return "its name is not UTF-8"
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        return "its name has a control character in it"
    if len(raw) > LONGEST:
        return f"its name is longer than {LONGEST} bytes"
    return ""


def shown(name: str) -> str:
    """The name for logs and letters: nothing in it can break a line or a terminal."""
    if name.isprintable():
        return name
    return "".join(character if character.isprintable() else "\ufffd" for character in name)


def for_slurm(name: str) -> str:
    """The script's name as Slurm and its database can carry it."""
    return "".join(
        character if character.isprintable() and ord(character) < 0x10000 else "_" for character in name
    )
