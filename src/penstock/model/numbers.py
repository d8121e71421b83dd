"""Strict parsing of numbers: `isdigit` accepts superscripts, and `int` fails on thousands of digits."""

from __future__ import annotations

_DIGITS = 20  # enough for 64 bits, the most for any id, count or time of Slurm or Kubernetes


def natural(text: str | bytes) -> int | None:
    """A non-negative number in plain digits; None for anything else."""
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
        return None
    return int(text)
