"""Atomic writes, also across a crash and over NFS.

The content is written to a temporary file in the same directory, synced and renamed; then the directory is
synced.
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
    """Replace `path` atomically; owner and mode are set before the content is written.

    Without `durable` a power cut may lose the file: enough for one that is rewritten every few seconds.
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
    """Make renames and new files in this directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
