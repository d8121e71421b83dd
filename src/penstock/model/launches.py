"""The launch request and the job's owner: all that pods are made of besides the allocation."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from penstock.model import numbers
from penstock.model.jobspec import PodSpec

_SPECIFIER = re.compile(r"%(\d)?([Aaj%])")  # a digit pads with zeros
_NAMES_TASK = re.compile(r"(?<!%)(?:%%)*%\d?[aj]")
_NO_TASK = "4294967294"  # Slurm's %a outside of arrays


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
        """A number that slurmd set; empty if there is none."""
        found = next((entry for entry in self.environment if entry.startswith(name + b"=")), b"")
        value = found.partition(b"=")[2].decode("ascii", "replace")
        return value if numbers.natural(value) is not None else ""
