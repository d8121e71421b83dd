"""Asks squeue and sacct for fields such that no user's text can look like another field.

A job's name, comment or working directory may contain anything, also line breaks and bars, and Slurm prints
it unchanged. So every field is followed by a separator that is random for each call.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from penstock import errors


def made_up() -> str:
    """A random separator for one call."""
    return f"|{secrets.token_hex(8)}|"


def wanted(names: Sequence[str], separator: str) -> str:
    """squeue's option for these fields."""
    return f"--Format={','.join(f'{name}:{separator}' for name in names)}"


def rows(text: str, separator: str, names: Sequence[str]) -> list[dict[str, str]]:
    """Fields by name for each job. SlurmError if some are missing."""
    *words, rest = (word.strip() for word in text.split(separator))
    width = len(names)
    if len(words) % width or rest:
        raise errors.SlurmError("Slurm printed a list that we do not understand")
    return [dict(zip(names, words[at : at + width], strict=True)) for at in range(0, len(words), width)]
