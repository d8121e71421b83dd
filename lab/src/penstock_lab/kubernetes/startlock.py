"""Labs of several processes share the kernel's inotify instances: they start one after another, each once
there is room for its kubelets. Of two that looked together both would see the room of one.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

from penstock_lab.kubernetes import inotify

PATIENCE = 900.0
"""Seconds; afterwards the lab itself says what it lacks."""
POLL_SECONDS = 0.5


@contextlib.contextmanager
def turn(lock: Path, nodes: int, *, patience: float = PATIENCE) -> Iterator[None]:
    """Hold the lock from when a cluster of that many nodes has room until it has been started."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        deadline = time.monotonic() + patience
        while not _has_room(nodes) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        yield


def _has_room(nodes: int) -> bool:
    return inotify.used() + inotify.needed(nodes) <= inotify.limit()
