"""The lab's ports: one block on loopback, chosen once.

It is below the range of ephemeral ports, so no outgoing connection of another program has one of them when a
component is restarted.
"""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Iterable

from penstock import errors
from penstock_lab import processes

LOOPBACK = "127.0.0.1"
SEARCH_RANGE = range(20000, 32000)
HIGHEST_PORT = 65535
_LISTENING = "0A"
_BLOCK = 16
POLL_SECONDS = 0.05


def is_free(port: int) -> bool:
    """Whether nothing listens on this port, on any address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


class Claims:
    """Reserves port ranges of labs that are coming up, so that others choose different ones.

    A lab listens on TCP only, so UDP ports of the same numbers serve as marks, one for every block that a
    range touches. The kernel removes them with the process.
    """

    def __init__(self) -> None:
        self._marks: list[socket.socket] = []

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *_: object) -> None:
        for mark in self._marks:
            mark.close()

    def choose_base(self, count: int, *, attempts: int = 200) -> int:
        """The first of `count` consecutive free ports, chosen at random."""
        chance = random.SystemRandom()
        for _ in range(attempts):
            base = chance.randrange(SEARCH_RANGE.start, SEARCH_RANGE.stop - count)
            row = range(base, base + count)
            if all(is_free(port) for port in row) and self.claim(row):
                return base
        raise errors.LabError(
            f"no {count} consecutive free ports between {SEARCH_RANGE.start} and {SEARCH_RANGE.stop}",
            hint="Choose the first one with --port-base.",
        )

    def claim(self, row: range) -> bool:
        """Reserve the range; False if part of it is reserved by another process."""
        before = len(self._marks)
        for port in range(row.start - row.start % _BLOCK, row.stop, _BLOCK):
            mark = socket.socket(type=socket.SOCK_DGRAM)
            self._marks.append(mark)
            try:
                mark.bind((LOOPBACK, port))
            except OSError:
                for made in self._marks[before:]:
                    made.close()
                del self._marks[before:]
                return False
        return True


def require_row(base: int, count: int) -> None:
    """Refuse a range that exceeds the highest port."""
    if base + count - 1 > HIGHEST_PORT:
        raise errors.UsageError(
            f"{count} consecutive ports are needed, and from {base} on there are {HIGHEST_PORT - base + 1}",
            hint=f"Choose a --port-base of at most {HIGHEST_PORT - count + 1}.",
        )


def require_free(wanted: Iterable[tuple[str, int]]) -> None:
    """Refuse ports that are in use."""
    for component, port in wanted:
        if not is_free(port):
            raise errors.LabError(
                f"port {port} for {component} is in use{_by_whom(port)}",
                hint="Stop what uses it, or choose other ports with --port-base.",
            )


def wait_free(component: str, port: int, *, seconds: float) -> None:
    """Wait until the port is free; raises LabError if it stays in use."""
    deadline = time.monotonic() + seconds
    while not is_free(port) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    require_free([(component, port)])


def is_listening(port: int) -> bool:
    """Whether something listens on this port, without connecting to it."""
    return bool(_listening_inodes(port))


def _by_whom(port: int) -> str:
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for process in processes.snapshot():
        if inodes & set(processes.open_targets(process.pid)):
            return f" by {process.name} (pid {process.pid})"
    return ""


def _listening_inodes(port: int) -> list[str]:
    inodes = []
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):  # no IPv6
            lines = (processes.PROC / "net" / table).read_text().split("\n")[1:-1]
            rows = (line.split() for line in lines)
            inodes += [row[9] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == _LISTENING]
    return inodes
