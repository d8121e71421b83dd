"""Numbers from outside, read strictly: `isdigit` takes superscripts for digits, and `int` gives up with an
error of its own at some thousand digits.
"""

from __future__ import annotations

_DIGITS = 20
"""64 bits fit, and no id, count or time of Slurm or Kubernetes has more."""


def natural(text: str | bytes) -> int | None:
    """A number that is not below zero, in plain digits; None for everything else."""
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
        return None
    return int(text)
