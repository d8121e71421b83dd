"""One `up`, `down` or `adduser` at a time for each lab; the lock ends with its process."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from penstock import errors


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Lock the lab in this directory; raises LabError if it is locked."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        raise _gone(directory) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.LabError(
                f"another penstock is working on the lab in {directory}: try again later"
            ) from None
        if not is_at_its_place(descriptor, directory):
            raise _gone(directory)
        yield
    finally:
        os.close(descriptor)


def is_at_its_place(descriptor: int, path: Path) -> bool:
    """Whether the path still is the locked file: it may have been removed and made again meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _gone(directory: Path) -> errors.LabError:
    return errors.LabError(f"another penstock has just removed the lab in {directory}: try again")
