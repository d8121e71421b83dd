"""Where the streams of a step's tasks go: what -i, -o and -e of srun name.

A name is a number, a file of the whole step, or a pattern with a file for each task. Only the step's own
facts tell: a number is a task if there are so many tasks, else the name of a file, and %s is known when the
step exists.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from penstock.model import filepatterns, releases

Kind = Literal["srun", "nothing", "number", "task", "file", "each"]

_ALL: Final = b"all"
_NONE: Final = b"none"
_NUMBER: Final = re.compile(rb"(?:\s*\+?(\d+))?")  # no digits at all are a zero for strtoul(3)
_OF_A_TASK: Final = frozenset((b"t", b"n", b"N", b"u"))
_NAMES_TASK_MODULO: Final[releases.Release] = (24, 11)
"""First release with %b."""

_ONE_PARSER: Final[releases.Release] = (25, 11)
"""First release with %r, and in which %a is 0 outside of arrays."""


class Stream(msgspec.Struct, frozen=True):
    """Where a stream of the tasks goes, or comes from.

    `srun`: through srun, to the caller's own stream. `nothing`: /dev/null. `number`: to be settled. `task`:
    through srun for that task, /dev/null for the others. `file`: opened once, in the calling pod, relative
    to the caller's directory; what srun passes on goes there. `each`: opened by each task in its pod,
    relative to its directory. If a step's stdout and stderr are the same `file` or `each`, it is opened
    once for both.
    """

    kind: Kind
    name: bytes = b""
    append: bool = False
    task: int = -1


class StepFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a name may contain of a step."""

    release: releases.Release
    job: int
    step: int
    array_job: int | None = None
    array_task: int | None = None
    job_name: bytes = b"(null)"  # the caller's SLURM_JOB_NAME
    user: bytes = b""


class TaskFacts(msgspec.Struct, frozen=True):
    """What a name may contain of a task: its number, and its node by number in the step and by name."""

    task: int
    node: int
    node_name: bytes


def stream(name: bytes | None, *, append: bool = False) -> Stream:
    """What a name means, as far as it can be known before the step exists."""
    if name is None or name[:3].lower() == _ALL or name.startswith(b"-"):
        return Stream("srun")
    if name.lower() == _NONE:
        return Stream("nothing")
    number = _NUMBER.fullmatch(name)
    if number is not None:
        return Stream("number", name, append, int(number[1] or 0))
    per_task = b"\\" not in name and filepatterns.letters(name) & _OF_A_TASK
    return Stream("each" if per_task else "file", name, append)


def settled(found: Stream, tasks: int) -> Stream:
    """The same in a step of so many tasks: a number is a task of it, or the name of a file."""
    if found.kind != "number":
        return found
    return Stream("task" if found.task < tasks else "file", found.name, found.append, found.task)


def path(found: Stream, step: StepFacts, task: TaskFacts | None = None) -> bytes:
    """The name of a stream's file; with the task's own for `each`."""
    if b"\\" in found.name:  # Slurm takes such a name literally, without the backslashes
        return found.name.replace(b"\\", b"")
    values = _of_step(step)
    if task is not None:
        values |= {b"t": task.task, b"n": task.node, b"N": task.node_name, b"u": step.user}
    return filepatterns.filled_in(found.name, values)


def _of_step(step: StepFacts) -> dict[bytes, filepatterns.Value]:
    one_parser = step.release >= _ONE_PARSER
    array_task = step.array_task
    if array_task is None:
        array_task = 0 if one_parser else filepatterns.NO_TASK
    values: dict[bytes, filepatterns.Value] = {
        b"j": step.job,
        b"J": (step.job, b".%d" % step.step),
        b"s": step.step,
        b"x": step.job_name,
        b"A": step.job if step.array_job is None else step.array_job,
        b"a": array_task,
    }
    if step.release >= _NAMES_TASK_MODULO:
        values[b"b"] = array_task % 10
    if one_parser:
        values[b"r"] = 0
    return values
