"""What the bridge may call, declared where it is used: tests can stand in for Slurm and Kubernetes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any, Protocol

from penstock.model import jobs


class Slurm(Protocol):
    """The part of Slurm that the bridge needs."""

    async def live_jobs(self) -> tuple[jobs.LiveJob, ...]: ...

    async def live_job(self, job_id: int) -> jobs.LiveJob | None: ...

    async def details(self, job_id: int) -> jobs.JobDetails: ...

    async def set_comment(self, job_id: int, text: str) -> None: ...

    async def requeue(self, job_id: int) -> None: ...

    async def requeues_by_default(self) -> bool: ...

    async def let_wait(self, job_id: int) -> None: ...

    async def set_requeue(self, job_id: int, *, allowed: bool) -> None: ...

    async def cancel(self, job_id: int) -> None: ...

    async def is_older_than_controller(self, job_id: int) -> bool: ...

    async def waiting(self, job_id: int) -> jobs.WaitingJob | None: ...

    async def queued(self, job_ids: Sequence[int]) -> tuple[jobs.Queued, ...]: ...

    async def put_off(self) -> tuple[int, ...]: ...

    async def steer(
        self, job: jobs.WaitingJob, *, avoids: Collection[str], seconds: int, until: int
    ) -> None: ...

    async def targets(self, partition: str) -> tuple[jobs.Target, ...]: ...

    async def drain(self, node: str, reason: str) -> None: ...

    async def resume(self, node: str) -> None: ...

    async def drained(self) -> dict[str, str]: ...


class Kube(Protocol):
    """The part of the Kubernetes API that the bridge needs."""

    async def get(
        self, resource: str, *, namespace: str = "", name: str = "", query: dict[str, str] | None = None
    ) -> bytes: ...

    async def create(
        self,
        resource: str,
        manifest: Mapping[str, Any],
        *,
        namespace: str = "",
        name: str = "",
        sub: str = "",
    ) -> bytes: ...

    async def delete(
        self, resource: str, *, namespace: str, name: str, uid: str, grace: int | None = None
    ) -> None: ...

    def log(self, *, namespace: str, name: str, container: str) -> AsyncIterator[bytes]: ...

    async def run(self, command: Sequence[str], *, namespace: str, name: str, container: str) -> None: ...

    def stream(
        self, command: Sequence[str], *, namespace: str, name: str, container: str
    ) -> AsyncIterator[tuple[int, bytes]]: ...
