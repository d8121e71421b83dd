"""Reads a growing file from its beginning, and again from the beginning when it is truncated or replaced."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

_CHUNK = 1 << 16


@dataclasses.dataclass
class Tail:
    path: Path
    inode: int = 0
    offset: int = 0
    began_again: int = 0
    """How often it was truncated or replaced, as by a requeued job."""

    def more(self) -> Iterator[bytes]:
        """New content; none while the file does not exist. Raises PermissionError."""
        try:
            stream = self.path.open("rb")
        except FileNotFoundError:
            return
        with stream:
            now = os.fstat(stream.fileno())
            if self.offset and (now.st_ino != self.inode or now.st_size < self.offset):
                self.offset = 0
                self.began_again += 1
            self.inode = now.st_ino
            stream.seek(self.offset)
            while chunk := stream.read(_CHUNK):
                self.offset += len(chunk)
                yield chunk
