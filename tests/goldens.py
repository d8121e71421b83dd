"""Rendered texts that somebody has read: one place that knows where they are and how they are renewed."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "golden"
RENEW = "PENSTOCK_GOLDEN"


def reviewed(name: str, text: str) -> str:
    """The reviewed text of that name; with PENSTOCK_GOLDEN=write it becomes this one, for git to show."""
    path = FOLDER / name
    if os.environ.get(RENEW) == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path.read_text(encoding="utf-8")
