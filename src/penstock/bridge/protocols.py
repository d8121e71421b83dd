"""Interfaces of Slurm, Kubernetes, launchers and metrics, as far as the bridge uses them."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from typing import Any, Protocol

from penstock.calls import outcomes
from penstock.kube import kinds, lists
from penstock.model import jobs, nodes
from penstock.model.reasons import Outcome, Refusal
from penstock.model.slurmfacts import SlurmFacts


class Slurm(Protocol):
    async def live_jobs(self) -> tuple[jobs.LiveJob, ...]: ...

    async def live_job(self, job_id: int) -> jobs.LiveJob | None: ...

    async def details(self, job_id: int) -> jobs.Job: ...

    async def failed_launch(self, job_id: int) -> jobs.Job | None: ...

    async def set_comment(self, job_id: int, text: str) -> None: ...

    async def say_why_it_waits(self, job_id: int, reason: str) -> None: ...

    async def requeue(self, job_id: int) -> None: ...

    async def facts(self) -> SlurmFacts: ...

    async def let_wait(self, job_id: int) -> None: ...

    async def set_requeue(self, job_id: int, *, allowed: bool) -> None: ...

    async def cancel(self, job_id: int) -> None: ...

    async def is_older_than_controller(self, job_id: int) -> bool: ...

    async def waiting(self, job_id: int) -> jobs.Job | None: ...

    async def queued(self, job_ids: Sequence[int]) -> tuple[jobs.Job, ...]: ...

    async def put_off(self) -> tuple[int, ...]: ...

    async def steer(
        self, job: jobs.Job, *, avoids: Collection[str], seconds: int | None, until: int
    ) -> None: ...

    async def targets(self, partition: str) -> tuple[nodes.Node, ...]: ...

    async def drain(self, node: str, reason: str) -> None: ...

    async def resume(self, node: str) -> None: ...

    async def drained(self, partitions: Collection[str]) -> tuple[nodes.Drain, ...]: ...


class Kube(lists.Source, Protocol):
    async def get(self, kind: kinds.Kind, *, name: str, namespace: str = "") -> bytes: ...

    async def create(
        self,
        kind: kinds.Kind,
        manifest: Mapping[str, Any],
        *,
        namespace: str = "",
        name: str = "",
        sub: kinds.Sub = "",
    ) -> bytes: ...

    async def delete(
        self, kind: kinds.Kind, *, namespace: str, name: str, uid: str, grace: int | None = None
    ) -> None: ...

    def log(self, *, namespace: str, name: str, container: str) -> AsyncIterator[bytes]: ...

    async def run(
        self, command: Sequence[str], *, namespace: str, name: str, container: str, text: bytes = b""
    ) -> None: ...

    def stream(
        self, command: Sequence[str], *, namespace: str, name: str, container: str
    ) -> AsyncIterator[tuple[int, bytes]]: ...

    def converse(
        self, command: Sequence[str], *, namespace: str, name: str, container: str
    ) -> contextlib.AbstractAsyncContextManager[Conversation]: ...


class Conversation(Protocol):
    """A command that runs in a container."""

    def printed(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """What it prints, by stream, until it ends."""

    async def send(self, data: bytes) -> None:
        """Write to its standard input; no bytes only show that we are there."""


@dataclasses.dataclass(frozen=True)
class Signal:
    """A signal that Slurm sent to the launcher."""

    number: signal.Signals
    everyone: bool
    """For all processes of the job, not only the script."""


@dataclasses.dataclass(frozen=True)
class Synced:
    """The launcher has written all output."""


@dataclasses.dataclass(frozen=True)
class Printed:
    """A command of Slurm's that the launcher runs has printed something."""

    key: str
    stream: int
    offset: int
    data: bytes


@dataclasses.dataclass(frozen=True)
class Ended:
    """It has ended, after all that it printed: `exit` with a code or `signal` with a number."""

    key: str
    how: str
    number: int


Message = Signal | Synced | Printed | Ended


class Launcher(Protocol):
    async def hear(self) -> Message | None:
        """The next message; None at the end of the connection."""

    async def started(self) -> None:
        """The script may run; from now on the launcher attaches to its gang."""

    async def note(self, text: str) -> None:
        """A line for the job's stderr."""

    async def output(self, chunk: bytes, stream: int) -> None: ...

    async def sync(self) -> None:
        """All output was sent; answered with Synced when it is written."""

    async def delivered(self) -> None:
        """Its oldest signal has reached the job."""

    async def die(self, number: int) -> None:
        """End by this signal."""

    async def run(self, key: str, command: outcomes.Run) -> None:
        """Run a command of Slurm's, once."""

    async def confirm(self, key: str, stream: int, offset: int) -> None:
        """What it printed before the offset has arrived."""

    async def again(self, key: str) -> None:
        """Send what is not confirmed again."""

    async def kill(self, key: str, number: int) -> None: ...

    async def forget(self, key: str) -> None:
        """Everything has arrived, or nobody waits for it any more."""

    async def exit(self, code: int) -> None: ...


class Meter(Protocol):
    def admitted(self) -> None: ...

    def refused(self, refusal: Refusal) -> None: ...

    def started(self, seconds: float) -> None: ...

    def ended(self, outcome: Outcome) -> None: ...

    def released(self, seconds: float) -> None: ...
