"""What becomes of a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

STDIN = b"-"
"""Stands for the call's standard input among wanted files."""
NOT_AVAILABLE = 1


class Unreadable:
    """The content of a file that the pod could not read."""


UNREADABLE = Unreadable()
Files = Mapping[bytes, "bytes | Unreadable"]
"""Content by path, as the pod sees it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """The call ends at once."""

    code: int
    out: bytes = b""
    err: bytes = b""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The plan depends on this file of the pod."""

    path: bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """The launcher runs this program of Slurm's with no other words and variables than these."""

    program: str
    words: tuple[bytes, ...] = ()
    environment: Mapping[bytes, bytes] = dataclasses.field(default_factory=dict)
    script: tuple[bytes, bytes] | None = None
    """Name and content of a file whose path stands between `words` and `arguments`."""
    arguments: tuple[bytes, ...] = ()
    folder: bytes = b""
    """Where it runs, if the node has this folder."""
    umask: bytes = b""


Plan = Answer | Wanted | Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """The job from whose pod a call comes, and what its site allows."""

    job_id: int
    release: str
    commands: tuple[str, ...]
    bridged_partitions: tuple[str, ...]
    default_partition: str = ""


def refused(name: str, why: str) -> Answer:
    """A call that cannot be served, in the form of Slurm's own errors."""
    return Answer(code=NOT_AVAILABLE, err=f"{name}: error: {why}\n".encode())
