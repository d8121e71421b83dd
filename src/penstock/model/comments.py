"""A job's Comment while it waits for Kubernetes: the reason, our mark, and what its owner wrote.

waits for gpu on n1: 1 free of 2 needed, held by default/notebook [penstock] run 3 of the ablation

The owner's part is restored when the job starts. It is kept in the comment itself, because penstockd may be
killed meanwhile; a comment without our mark was changed by its owner and is left alone.
"""

from __future__ import annotations

import re

from penstock.hooks import waitcomment as hook

_LONGEST = 4096  # characters: program arguments are limited to 128 KiB and have no NUL
_UNSET = ("", "(null)", "N/A")
_MARK = hook.MARK.decode()
_OURS = re.compile(rf"(?P<reason>.*?){re.escape(_MARK)}(?: (?P<own>.*))?", re.DOTALL)


def waiting(reason: str, comment: str) -> str:
    """The comment with the reason in front, replacing an earlier reason."""
    kept = own(comment)
    before = comment if kept is None else kept
    return f"{reason}{_MARK}" if before in _UNSET else f"{reason}{_MARK} {before}"


def own(comment: str) -> str | None:
    """The owner's part of a comment with our mark; None for any other comment."""
    found = _OURS.fullmatch(comment)
    return (found["own"] or "") if found else None


def printable(text: str) -> str:
    """The text as a program's argument: shortened, without control characters."""
    return "".join(each if each.isprintable() else " " for each in text[:_LONGEST])
