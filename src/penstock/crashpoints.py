"""Named steps of the protocol at which the crash matrix kills somebody.

In production `reach` is an empty function; another one only when ENV_CRASH_POINTS was set as the process
started, which the lab does for tests. Hooks have their steps as comments, which only a lab for tests renders
into calls (render/crashhooks.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from penstock import wellknown
from penstock.hooks import points


def _pass_by(name: str) -> None:
    """Nobody is interested."""


def _in(folder: str) -> Callable[[str], None]:
    return lambda name: points.reach(folder, name)


_FOLDER = os.environ.get(wellknown.ENV_CRASH_POINTS)
reach: Callable[[str], None] = _in(_FOLDER) if _FOLDER else _pass_by
