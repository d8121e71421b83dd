"""Labs of several test processes share the kernel's inotify instances, so they start one at a time, each once
there are enough for its kubelets.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

from penstock_lab.kubernetes import inotify

PATIENCE = 900.0
"""Seconds; afterwards the lab starts anyway and reports what is missing."""
POLL_SECONDS = 0.5


@contextlib.contextmanager
def turn(lock: Path, nodes: int, *, patience: float = PATIENCE) -> Iterator[None]:
    """Wait until a cluster with that many nodes has enough instances, and hold the lock while it starts."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        deadline = time.monotonic() + patience
        while inotify.used() + inotify.needed(nodes) > inotify.limit() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        yield
