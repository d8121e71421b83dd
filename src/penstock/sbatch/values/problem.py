"""Problem, which every grammar raises, and C's conversions of numbers."""

from __future__ import annotations

from typing import Final

from penstock.sbatch.patterns import Pattern

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
INTEGER: Final = Pattern(r"[ \t\n\v\f\r]*([+-]?)([0-9]+)")
"""A number for strtol(3), base 10."""


class Problem(Exception):
    """A value that Slurm refuses, or, if `odd`, accepts as `value`, which is surely not meant."""

    def __init__(self, message: str, hint: str = "", *, odd: bool = False, value: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.odd = odd
        self.value = value


def whole_number(text: str) -> int | None:
    """The number if the whole text is one for strtol(3), else None."""
    match = INTEGER.fullmatch(text)
    if match is None:
        return None
    digits = match.group(2).lstrip("0")[:20] or "0"
    return max(-int(digits), -LONG_MAX - 1) if match.group(1) == "-" else min(int(digits), LONG_MAX)


def leading_number(text: str) -> int:
    """atoi(3): the number at the beginning, else 0."""
    match = INTEGER.match(text)
    return 0 if match is None else int(match.group(1) + match.group(2)[:18])


def as_int32(number: int) -> int:
    """The number in a C int."""
    return (number + 2**31) % 2**32 - 2**31


def split_outside_brackets(text: str, separators: str = ",") -> list[str]:
    """Split at separators that are not inside [ ]; linear, because lists can be long."""
    parts, start, inside = [], 0, False
    for position, char in enumerate(text):
        if char == "[":
            inside = True
        elif char == "]":
            inside = False
        elif char in separators and not inside:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return parts
