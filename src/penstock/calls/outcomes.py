"""What becomes of a command of Slurm's typed in a pod: an answer, a program to run, a step, or files to read
first.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.calls import multiprog, outputpatterns
from penstock.model import podcommands, releases

STDIN = b"-"
"""Stands for the call's standard input among wanted files."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan needs of the job from whose pod a call comes, of its site and of its Slurm."""

    id: int
    release: releases.Release
    cluster: bytes = b""
    appends: bool = False  # JobFileAppend of slurm.conf: the default of --open-mode
    commands: tuple[str, ...] = podcommands.OFFERED  # that the site offers
    bridged_partitions: tuple[str, ...] = ()
    default_partition: str = ""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The launcher runs this program of Slurm's with no other words and variables than these."""

    program: str
    words: tuple[bytes, ...] = ()
    environment: Mapping[bytes, bytes] = {}
    script: tuple[bytes, bytes] | None = None  # a file's name and content; its path is between the words
    arguments: tuple[bytes, ...] = ()  # behind the script
    folder: bytes = b""  # where it runs, if the node has this folder
    umask: bytes = b""


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
    """The call ends at once with these words and this code."""

    code: int
    stderr: bytes = b""


class Wanted(msgspec.Struct, frozen=True):
    """Files to be read in the calling pod, relative to the caller's directory, for a second plan."""

    files: tuple[bytes, ...]


class Unreadable(msgspec.Struct, frozen=True):
    """A wanted file that could not be read, and why."""

    reason: bytes


Files = Mapping[bytes, bytes | Unreadable]
"""The wanted files by name."""


class Ended(Exception):
    """Carries an answer, or wanted files, out of the planning."""

    def __init__(self, outcome: Answer | Wanted) -> None:
        super().__init__(outcome)
        self.outcome = outcome


def error(*lines: bytes, code: int, end: bytes = b"") -> Ended:
    """srun's words for errors, with its name before each line."""
    return Ended(Answer(stderr=b"".join(b"srun: error: %b\n" % line for line in lines) + end, code=code))


def refused(name: str, why: str) -> Answer:
    """A call that is not served, in the form of Slurm's own errors."""
    return Answer(code=1, stderr=f"{name}: error: penstock: {why}\n".encode())
