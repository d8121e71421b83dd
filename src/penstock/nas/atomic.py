"""Atomic writes, across a crash and over NFS: write a temporary file, sync, rename, sync the directory."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path, *, prefix: str) -> Iterator[int]:
    """A descriptor of a temporary file, which replaces `path` if the block succeeds."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=prefix)
    try:
        try:
            yield descriptor
        finally:
            os.close(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise


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
    with replacing(path, prefix=f".{path.name[:100]}.") as descriptor:
        if owner is not None:
            os.fchown(descriptor, *owner)
        os.fchmod(descriptor, mode)
        with os.fdopen(descriptor, "wb", closefd=False) as stream:
            stream.write(content)
        if durable:
            os.fsync(descriptor)
    if durable:
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
