"""Files that are there whole or not at all, also after a crash and over NFS.

The content is written under another name in the same directory, reaches the disk, and only then gets its
name; then the directory reaches the disk, too.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write(
    path: Path,
    content: bytes,
    *,
    mode: int = 0o644,
    owner: tuple[int, int] | None = None,
    durable: bool = True,
) -> None:
    """Put `content` at `path` in one step; owner and mode are right before anything can be read.

    What is written again every few seconds need not be durable: it is whole, but may be lost with the power.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if owner is not None:
                os.fchown(stream.fileno(), *owner)
            os.fchmod(stream.fileno(), mode)
            stream.write(content)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
    if durable:
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make what was renamed or made in this directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
