"""A file that somebody else writes, read as it grows: from its beginning, also when it begins again."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

_CHUNK = 1 << 16


@dataclasses.dataclass
class Tail:
    """How far one file has been read."""

    path: Path
    inode: int = 0
    offset: int = 0
    began_again: int = 0
    """How often it was emptied or replaced under us, as a requeued job does."""

    def more(self) -> Iterator[bytes]:
        """What is new; nothing while the file is not there. PermissionError when it is not ours to read."""
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
