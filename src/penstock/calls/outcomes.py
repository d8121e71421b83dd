"""What can become of an srun in a pod: a step, an answer, a plain call, or files to read first."""

from __future__ import annotations

import msgspec

from penstock.calls import multiprog, outputpatterns
from penstock.model import releases


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan needs of the job that srun is called in."""

    id: int
    release: releases.Release
    cluster: bytes = b""
    appends: bool = False  # JobFileAppend of slurm.conf: the default of --open-mode


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The real srun's options and whole environment, and what the pods do for each task.

    Names of files are the user's: `chdir` and those of streams are relative to the caller's directory.
    """

    argv: tuple[bytes, ...]  # without srun and without a program
    environment: dict[bytes, bytes]
    program: tuple[bytes, ...]
    multi_prog: multiprog.Configuration | None = (
        None  # names each task's program; `program` goes after its words
    )
    task_environment: dict[bytes, bytes]
    chdir: bytes = b""  # empty: the caller's directory
    stdin: outputpatterns.Stream
    stdout: outputpatterns.Stream
    stderr: outputpatterns.Stream
    unbuffered: bool = False
    notes: tuple[bytes, ...] = ()  # lines for stderr, before the step starts


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """srun ends at once with these words and this code."""

    stderr: bytes
    code: int


class Plain(msgspec.Struct, frozen=True):
    """The real srun answers with just these words and no environment of the user's; it starts no step."""

    words: tuple[bytes, ...]


class Wanted(msgspec.Struct, frozen=True):
    """Files to be read in the calling pod, relative to the caller's directory, for a second plan."""

    files: tuple[bytes, ...]


class Unreadable(msgspec.Struct, frozen=True):
    """A wanted file that could not be read, and why."""

    reason: bytes


class Ended(Exception):
    """Carries an answer, or wanted files, out of the planning."""

    def __init__(self, outcome: Answer | Wanted) -> None:
        super().__init__(outcome)
        self.outcome = outcome


def error(*lines: bytes, code: int, end: bytes = b"") -> Ended:
    """srun's words for errors, with its name before each line."""
    return Ended(Answer(stderr=b"".join(b"srun: error: %b\n" % line for line in lines) + end, code=code))
