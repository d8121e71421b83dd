"""What the launcher hands over, and who it is for: everything a job's pods are made of besides the
allocation.
"""

from __future__ import annotations

import dataclasses

from penstock.model.jobspec import PodSpec


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
    arguments: tuple[bytes, ...]
    environment: tuple[bytes, ...]
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
