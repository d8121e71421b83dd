"""One `up`, `down` or `adduser` at a time for each lab; the lock ends with its holder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from penstock import errors


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Keep others away from the lab in this directory; LabError when somebody is at it already."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.LabError(
                f"another penstock is working on the lab in {directory}: try again later"
            ) from None
        yield
    finally:
        os.close(descriptor)
