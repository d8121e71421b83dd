"""Whom views ask: Slurm and penstockd, as far as they need them, and those of the site that is meant here.

Where both are is looked up when they are asked: a site file that cannot be read does not matter to a view
that needs nothing of it.
"""

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
    """Jobs as Slurm knows them; errors and results are those of slurm/lookup.py."""

    async def queue(self, *, user: str = "") -> tuple[jobs.Job, ...]: ...

    async def record(self, job: str) -> jobs.Job: ...

    async def records(self, job: str) -> tuple[jobs.Job, ...]: ...


class Answer(msgspec.Struct, frozen=True):
    """What penstockd says of jobs."""

    jobs: list[JobView]
    sees_all: bool
    """Whether the asker is told of everybody's jobs."""
    asker: str = ""
    problem: str = ""
    """Why nothing is known of any job."""

    def hides(self, user: str) -> bool:
        """Whether nothing can be said of this user's jobs: not the asker's to see, or nobody answers."""
        return bool(self.problem) or (not self.sees_all and user != self.asker)

    def by_job(self) -> dict[int, JobView]:
        return {view.job_id: view for view in self.jobs}


class Penstockd(Protocol):
    """The Kubernetes side of jobs."""

    async def describe(self, job_ids: Iterable[int] = ()) -> Answer:
        """Of these jobs, or of all with pods or sent back; PenstockError when nobody answers."""


class SlurmCommands(msgspec.Struct, frozen=True):
    """Slurm by its commands."""

    conf: Callable[[], str] = installation.slurm_conf

    async def queue(self, *, user: str = "") -> tuple[jobs.Job, ...]:
        return await reader.SlurmReader(self.conf()).shown_queue(user=user)

    async def record(self, job: str) -> jobs.Job:
        return await lookup.record(self.conf(), job)

    async def records(self, job: str) -> tuple[jobs.Job, ...]:
        return await lookup.records(self.conf(), job)


class Socket(msgspec.Struct, frozen=True):
    """penstockd by its socket: the kernel tells it who asks, and it tells what that user may see."""

    path: Callable[[], str] = installation.socket

    async def describe(self, job_ids: Iterable[int] = ()) -> Answer:
        path = self.path()
        words = (wellknown.VERB_DESCRIBE, *(word for job_id in job_ids for word in ("job", str(job_id))))
        try:
            answer = await threads.run(wire.ask, path, SECONDS, *words)
        except (OSError, wire.WireError) as error:
            raise errors.PenstockError(
                f"penstockd does not answer on {path}: {error}",
                hint='Is it running? For a lab: `penstock lab status`, then eval "$(penstock lab env)".',
            ) from error
        if not answer or answer[0] != b"jobs":
            raise errors.PenstockError(f"penstockd on {path} did not understand the question")
        found = msgspec.json.decode(answer[1], type=list[JobView])
        return Answer(found, answer[2:] == [b"all"], _own_name())


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
