"""Wording shared by several commands and messages."""

from __future__ import annotations

from collections.abc import Sequence


def some(names: Sequence[str], most: int = 5) -> str:
    """`n1, n2 and 7 more`: the first few of what may be many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def many(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def without_stray_bytes(text: str) -> str:
    """Replace bytes that were not valid text when read (surrogateescape)."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def printable(text: str) -> str:
    """Replace control characters and stray bytes, which must not reach a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char == "\t" or char.isprintable() else "\ufffd" for char in text)
