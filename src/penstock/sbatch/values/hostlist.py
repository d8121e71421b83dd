"""Counts the nodes of a host list such as `n[1-3,07],login`, without expanding it: lists can be huge."""

from __future__ import annotations

from penstock.sbatch.patterns import Pattern
from penstock.sbatch.values.problem import Problem, split_outside_brackets

_BRACKETS = Pattern(r"\[([^\]]*)\]")
_RANGE = Pattern(r"([0-9]+)(?:-([0-9]+))?")


def hostlist(text: str) -> str:
    """Check the list, and keep it as written."""
    count(text)
    return text


def count(text: str) -> int:
    """The number of names; a text with a slash is a file name and counts 0."""
    if "/" in text:
        return 0
    return sum(_one(part) for part in split_outside_brackets(text) if part)


def _one(part: str) -> int:
    total = 1
    for body in _BRACKETS.finditer(part):
        total *= sum(_range(piece, part) for piece in body.group(1).split(","))
    rest = _BRACKETS.sub("", part)
    if "[" in rest or "]" in rest:
        raise Problem(f"{part!r}: a bracket is missing", "as in n[1-3,7]")
    return total


def _range(piece: str, text: str) -> int:
    match = _RANGE.fullmatch(piece)
    if match is None:
        raise Problem(f"{piece!r} in {text!r} is not a valid range of numbers", "as in n[1-3,7]")
    low, high = int(match.group(1)[:12]), int((match.group(2) or match.group(1))[:12])
    if high < low:
        raise Problem(f"{piece!r} in {text!r} runs backwards")
    return high - low + 1
