"""What penstockd tells people about jobs: the Kubernetes side and the timeline, ready for a table or JSON."""

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
    warnings: tuple[str, ...] = ()
    """What the cluster complains of while it has not started, the latest last."""


class StepView(msgspec.Struct, frozen=True):
    """One step of the protocol."""

    at: float
    name: str
    text: str = ""
    kind: str = ""
    """Of the refusal or the outcome that it is about."""


class JobView(msgspec.Struct, frozen=True):
    """The Kubernetes side of one job."""

    job_id: int
    pods: tuple[PodView, ...] = ()
    timeline: tuple[StepView, ...] = ()
    stdout: bytes = b""
    """Where the attempt under way writes, as the kernel names it; empty when there is none."""
    stderr: bytes = b""
    refusals: tuple[Refusal, ...] = ()
    """Why it was sent back to the queue, if nothing has happened to it since."""
