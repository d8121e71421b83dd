"""Fields such as %j and %4t in Slurm's patterns of file names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

NO_TASK: Final = 4294967294
"""Slurm's %a outside of arrays."""

_FIELD: Final = re.compile(rb"%(\d*)(.)", re.DOTALL)
_WIDEST: Final = 10

Value = int | bytes | tuple[int, bytes]
"""A number is padded with zeros, a text is not; a pair is a padded number and the text after it."""


def filled_in(pattern: bytes, values: Mapping[bytes, Value]) -> bytes:
    """Replace the fields that are known, and %% by %. Others stay as they are."""
    return _FIELD.sub(lambda match: _replaced(match, values), pattern)


def letters(pattern: bytes) -> set[bytes]:
    """The letters of a pattern's fields."""
    return {match[2] for match in _FIELD.finditer(pattern)}


def _replaced(match: re.Match[bytes], values: Mapping[bytes, Value]) -> bytes:
    width, letter = match[1], match[2]
    if letter == b"%" and not width:
        return b"%"
    value = values.get(letter)
    if value is None:
        return match[0]
    if isinstance(value, bytes):
        return value
    number, text = value if isinstance(value, tuple) else (value, b"")
    return str(number).encode().zfill(min(int(width or 0), _WIDEST)) + text
