"""File names: which are temporary files of editors and copying programs, and which can name a job."""

from __future__ import annotations

import os
import re

from penstock import wellknown

LONGEST = 200  # bytes: leaves room for the token before a claimed name and the suffix of the error text
_COPIES = (".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload", ".download", ":Zone.Identifier")
_EDITORS = ("~", ".swp", ".swo", ".swx", ".bak", ".lock")
_WHOLE = frozenset(("4913", "Thumbs.db", "desktop.ini", "lost+found"))  # 4913 is vim's test for a folder
_TEMPORARY = re.compile(r"\.|~\$|#.*#$|.*\.tmp\.[0-9a-f]+$", re.DOTALL)


def is_hidden(name: str) -> bool:
    """Whether it is a hidden file, a backup, or a copy under way."""
    return bool(_TEMPORARY.match(name)) or name.endswith((*_COPIES, *_EDITORS)) or name in _WHOLE


def marked(name: str) -> str:
    """The file that a marker (<name>.done) declares complete; empty if the name is not a marker's."""
    return name.removesuffix(wellknown.DONE_SUFFIX) if name.endswith(wellknown.DONE_SUFFIX) else ""


def problem(name: str) -> str:
    """Why no job can have this name; empty if one can."""
    try:
        raw = os.fsencode(name)
        raw.decode()
    except UnicodeError:
        return "its name is not UTF-8"
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        return "its name contains a control character"
    if len(raw) > LONGEST:
        return f"its name is longer than {LONGEST} bytes"
    return ""


def shown(name: str) -> str:
    """The name for logs and messages, without line breaks and terminal controls."""
    return "".join(character if character.isprintable() else "\ufffd" for character in name)


def for_slurm(name: str) -> str:
    """The script's name in characters that Slurm and its database accept."""
    return "".join(
        character if character.isprintable() and ord(character) < 0x10000 else "_" for character in name
    )
