"""Named steps of the protocol at which the crash matrix kills a process.

In production `reach` does nothing; it does something only if ENV_CRASH_POINTS was set when the process
started, as in labs for tests. Hooks have their steps as comments, which only such a lab renders into calls
(render/crashhooks.py).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

from penstock import wellknown
from penstock.hooks import points


def _pass_by(name: str) -> None:
    """In production."""


_FOLDER = os.environ.get(wellknown.ENV_CRASH_POINTS)
reach: Callable[[str], None] = functools.partial(points.reach, _FOLDER) if _FOLDER else _pass_by
