"""What the launcher hands over, and who it is for: everything a job's pods are made of besides the
allocation.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from penstock.model import numbers
from penstock.model.jobspec import PodSpec

_SPECIFIER = re.compile(r"%(\d)?([Aaj%])")  # a digit pads with zeros
_NAMES_TASK = re.compile(r"(?<!%)(?:%%)*%\d?[aj]")
_NO_TASK = "4294967294"  # what Slurm writes for %a outside arrays


@dataclasses.dataclass(frozen=True, kw_only=True)
class Owner:
    """The job's user as this host knows it; decides uid, groups and namespace of the pods."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str = ""
    account: str = ""
    """Slurm's account that the job is charged to."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """The batch process that slurmd started, as data. Bytes, because none of it has to be text."""

    interpreter: bytes
    """What followed the launcher in the script's first line: a path and at most one argument."""
    script: bytes
    arguments: tuple[bytes, ...] = ()
    environment: tuple[bytes, ...] = ()
    """NAME=value entries."""
    workdir: bytes
    stdout: bytes
    """Where the process's output goes, every pattern expanded, as the kernel names it."""
    stderr: bytes
    stdin: bytes = b"/dev/null"
    umask: bytes = b""
    """Octal digits, as the submitter had it; empty: the image's own."""
    output_dir: bytes = b""
    """The folder that the agent makes for the job's outputs; empty: none."""
    pod: PodSpec = dataclasses.field(default_factory=PodSpec)
    """What the script's #K8S_ directives ask for."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Patterns of #K8S_OUTPUTS, with %A, %a and %j filled in as in --output."""
        return self.filled_in(self.pod.outputs)

    @property
    def everybodys_outputs(self) -> tuple[str, ...]:
        """Patterns that would name, in a folder that all tasks of this job's array share, the others' files,
        too.
        """
        if not self._variable(b"SLURM_ARRAY_TASK_ID"):
            return ()
        return tuple(filter(lambda pattern: not _NAMES_TASK.search(pattern), self.pod.outputs))

    def filled_in(self, patterns: Iterable[str]) -> tuple[str, ...]:
        job = self._variable(b"SLURM_JOB_ID")
        values = {
            "A": self._variable(b"SLURM_ARRAY_JOB_ID") or job,
            "a": self._variable(b"SLURM_ARRAY_TASK_ID") or _NO_TASK,
            "j": job,
            "%": "%",
        }
        return tuple(
            _SPECIFIER.sub(lambda match: values[match[2]].zfill(int(match[1] or 0)), pattern)
            for pattern in patterns
        )

    def _variable(self, name: bytes) -> str:
        """A number that slurmd set; empty when there is none."""
        found = next((entry for entry in self.environment if entry.startswith(name + b"=")), b"")
        value = found.partition(b"=")[2].decode("ascii", "replace")
        return value if numbers.natural(value) is not None else ""
