"""Plans of calls, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from penstock.calls import commands, plans
from penstock.calls.requests import Request

NOTHING: Mapping[bytes, Any] = MappingProxyType({})
JOB = plans.Job(
    job_id=17,
    release="22.05",
    commands=("squeue", "sinfo", "sacct", "sprio", "sshare", "sstat", "scancel", "scontrol", "sbatch"),
    bridged_partitions=("gpu", "cpu"),
    default_partition="gpu",
)


def plan(
    name: str, *words: bytes, environment: Mapping[bytes, bytes] = NOTHING, files: plans.Files = NOTHING
) -> plans.Plan:
    request = Request(name=name, words=words, environment=environment, folder=b"/nas/alice")
    return commands.plan(request, JOB, files)


def planned(
    name: str, *words: bytes, environment: Mapping[bytes, bytes] = NOTHING, files: plans.Files = NOTHING
) -> plans.Run:
    """The plan, which is to run something."""
    found = plan(name, *words, environment=environment, files=files)
    assert isinstance(found, plans.Run), found
    return found


def refusal(name: str, *words: bytes, files: plans.Files = NOTHING) -> plans.Answer:
    """The plan, which is to say no."""
    found = plan(name, *words, files=files)
    assert isinstance(found, plans.Answer), found
    assert found.code
    assert found.err.startswith(f"{name}: error: ".encode())
    assert found.err.endswith(b"\n")
    return found
