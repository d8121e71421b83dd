"""What penstockd tells people about jobs: pods and timeline, ready for a table or JSON."""

from __future__ import annotations

import msgspec

from penstock.model.reasons import Refusal


class PodView(msgspec.Struct, frozen=True):
    """One pod of a job."""

    name: str
    namespace: str
    rank: int
    restart: int
    node: str
    status: str
    image: str
    reason: str = ""
    warnings: tuple[str, ...] = ()  # warning events while it has not started, the latest last


class StepView(msgspec.Struct, frozen=True):
    """One step of the protocol."""

    at: float
    name: str
    text: str = ""
    kind: str = ""  # of the refusal or outcome


class JobView(msgspec.Struct, frozen=True):
    """The Kubernetes side of one job."""

    job_id: int
    pods: tuple[PodView, ...] = ()
    timeline: tuple[StepView, ...] = ()
    stdout: bytes = b""  # where the current attempt writes, as the kernel names it; empty if there is none
    stderr: bytes = b""
    refusals: tuple[Refusal, ...] = ()  # why admission refused it, if nothing has happened to it since
