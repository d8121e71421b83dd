"""A job's Comment while it waits for Kubernetes: the reason, our name, and what its owner wrote there before.

    waits for gpu on n1: 1 free of 2 needed, held by default/notebook [penstock] run 3 of the ablation

The owner's part comes back when the job starts. It is kept in the comment itself: penstockd may be killed
meanwhile, and a comment that its owner has changed has no mark of ours and is left alone.
"""

from __future__ import annotations

import re

from penstock.hooks import waitcomment as hook

_LONGEST = 4096  # characters: a part is other people's words, and no program takes 128 KiB, or a NUL
_UNSET = ("", "(null)", "N/A")
_MARK = hook.MARK.decode()
_OURS = re.compile(rf"(?P<reason>.*?){re.escape(_MARK)}(?: (?P<own>.*))?", re.DOTALL)


def waiting(reason: str, comment: str) -> str:
    """The comment of a job that waits for this reason, and has that comment now."""
    kept = own(comment)
    before = comment if kept is None else kept
    return f"{reason}{_MARK}" if before in _UNSET else f"{reason}{_MARK} {before}"


def own(comment: str) -> str | None:
    """What the owner wrote, of a comment that says why a job waits; None of any other."""
    found = _OURS.fullmatch(comment)
    return (found["own"] or "") if found else None


def printable(text: str) -> str:
    """As much of it as a program can be told."""
    return "".join(each if each.isprintable() else " " for each in text[:_LONGEST])
