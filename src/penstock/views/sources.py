"""The sources of views: Slurm and penstockd of the chosen site, which is read only when they are asked."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from penstock import errors, wellknown
from penstock.hooks import wire
from penstock.model import jobs
from penstock.model.descriptions import JobView
from penstock.slurm import lookup, reader
from penstock.views import installation, threads

SECONDS = 10.0


class Slurm(Protocol):
    """Jobs in Slurm; errors as in slurm/lookup.py."""

    async def queue(self, *, user: str = "") -> tuple[jobs.Job, ...]: ...

    async def record(self, job: str) -> jobs.Job: ...

    async def records(self, job: str) -> tuple[jobs.Job, ...]: ...


class Answer(msgspec.Struct, frozen=True):
    jobs: list[JobView]
    sees_all: bool
    """Whether the caller may see all users' jobs."""
    asker: str = ""
    problem: str = ""
    """Why no job could be read."""

    def hides(self, user: str) -> bool:
        """Whether the caller may not see this user's jobs, or penstockd did not answer."""
        return bool(self.problem) or (not self.sees_all and user != self.asker)

    def by_job(self) -> dict[int, JobView]:
        return {view.job_id: view for view in self.jobs}


class Penstockd(Protocol):
    """Jobs in Kubernetes."""

    async def describe(self, job_ids: Iterable[int] = ()) -> Answer:
        """These jobs, or all that have pods or were refused. Raises PenstockError."""


class SlurmCommands(msgspec.Struct, frozen=True):
    conf: Callable[[], str] = installation.slurm_conf

    async def queue(self, *, user: str = "") -> tuple[jobs.Job, ...]:
        return await reader.SlurmReader(self.conf()).shown_queue(user=user)

    async def record(self, job: str) -> jobs.Job:
        return await lookup.record(self.conf(), job)

    async def records(self, job: str) -> tuple[jobs.Job, ...]:
        return await lookup.records(self.conf(), job)


class Socket(msgspec.Struct, frozen=True):
    """penstockd through its socket; it learns the caller from the kernel and answers what they may see."""

    path: Callable[[], str] = installation.socket

    async def describe(self, job_ids: Iterable[int] = ()) -> Answer:
        path = self.path()
        words = (wellknown.VERB_DESCRIBE, *(word for job_id in job_ids for word in ("job", str(job_id))))
        try:
            answer = await threads.run(wire.ask, path, SECONDS, *words)
        except (OSError, wire.WireError) as error:
            raise errors.PenstockError(
                f"penstockd does not answer on {path}: {error}",
                hint='Is it running? In a lab: `penstock lab status`, then eval "$(penstock lab env)".',
            ) from error
        if not answer or answer[0] != b"jobs":
            raise errors.PenstockError(f"penstockd on {path} did not understand the request")
        found = msgspec.json.decode(answer[1], type=list[JobView])
        return Answer(found, answer[2:] == [b"all"], _own_name())


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
