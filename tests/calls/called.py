"""Plans of calls, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from penstock.calls import commands, outcomes
from penstock.calls.requests import Request

NOTHING: Mapping[bytes, Any] = MappingProxyType({})
JOB = outcomes.Job(
    id=17,
    release=(22, 5),
    commands=("squeue", "sinfo", "sacct", "sprio", "sshare", "sstat", "scancel", "scontrol", "sbatch"),
    bridged_partitions=("gpu", "cpu"),
    default_partition="gpu",
)


def plan(
    name: str, *words: bytes, environment: Mapping[bytes, bytes] = NOTHING, files: outcomes.Files = NOTHING
) -> outcomes.Answer | outcomes.Run | outcomes.Wanted:
    request = Request(name=name, words=words, environment=environment, folder=b"/nas/alice")
    return commands.plan(request, JOB, files)


def planned(
    name: str, *words: bytes, environment: Mapping[bytes, bytes] = NOTHING, files: outcomes.Files = NOTHING
) -> outcomes.Run:
    """The plan, which is to run something."""
    found = plan(name, *words, environment=environment, files=files)
    assert isinstance(found, outcomes.Run), found
    return found


def refusal(name: str, *words: bytes, files: outcomes.Files = NOTHING) -> outcomes.Answer:
    """The plan, which is to say no."""
    found = plan(name, *words, files=files)
    assert isinstance(found, outcomes.Answer), found
    assert found.code
    assert found.stderr.startswith(f"{name}: error: ".encode())
    assert found.stderr.endswith(b"\n")
    return found
