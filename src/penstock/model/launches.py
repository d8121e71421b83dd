"""The launch request and the job's owner: all that pods are made of besides the allocation."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable

from penstock.model import filepatterns, numbers
from penstock.model.jobspec import PodSpec

_NAMES_TASK = re.compile(r"(?<!%)(?:%%)*%\d*[aj]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Owner:
    """The job's user as this host knows it; decides uid, groups and namespace of the pods."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str = ""
    account: str = ""  # the Slurm account that the job is charged to


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """The batch process that slurmd started. Bytes, because none of it has to be text."""

    interpreter: bytes  # a path and at most one argument, from the script's first line
    script: bytes
    arguments: tuple[bytes, ...] = ()
    environment: tuple[bytes, ...] = ()  # NAME=value entries
    workdir: bytes
    stdout: bytes  # as the kernel names the file, every pattern expanded
    stderr: bytes
    stdin: bytes = b"/dev/null"
    umask: bytes = b""  # the submitter's, in octal digits; empty: the image's own
    output_dir: bytes = b""  # the output folder that the agent creates; empty: none
    pod: PodSpec = dataclasses.field(default_factory=PodSpec)  # from the script's #K8S_ directives
    relays: bool = False  # whether its launcher can run Slurm's commands for pods

    @property
    def outputs(self) -> tuple[str, ...]:
        """Patterns of #K8S_OUTPUTS, with %A, %a and %j replaced as in --output."""
        return self.filled_in(self.pod.outputs)

    @property
    def everybodys_outputs(self) -> tuple[str, ...]:
        """Patterns that, in a folder shared by all tasks of an array, also match other tasks' files."""
        if self._variable(b"SLURM_ARRAY_TASK_ID") is None:
            return ()
        return tuple(filter(lambda pattern: not _NAMES_TASK.search(pattern), self.pod.outputs))

    def filled_in(self, patterns: Iterable[str]) -> tuple[str, ...]:
        job = self._variable(b"SLURM_JOB_ID") or b""
        task = self._variable(b"SLURM_ARRAY_TASK_ID")
        values: dict[bytes, filepatterns.Value] = {
            b"A": self._variable(b"SLURM_ARRAY_JOB_ID") or job,
            b"a": filepatterns.NO_TASK if task is None else task,
            b"j": job,
        }
        return tuple(
            os.fsdecode(filepatterns.filled_in(os.fsencode(pattern), values)) for pattern in patterns
        )

    def _variable(self, name: bytes) -> int | None:
        """A number that slurmd set; None if there is none."""
        found = next((entry for entry in self.environment if entry.startswith(name + b"=")), b"")
        return numbers.natural(found.partition(b"=")[2])
