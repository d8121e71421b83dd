"""Fake Slurm and penstockd for tests of views."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from penstock import errors
from penstock.model import descriptions, jobs
from penstock.views import sources


@dataclasses.dataclass
class Slurm:
    """Returns these records in order, the last one forever; without records it knows no job."""

    queued: tuple[jobs.Job, ...] = ()
    known: list[tuple[jobs.Job, ...]] = dataclasses.field(default_factory=list)

    async def queue(self, *, user: str = "") -> tuple[jobs.Job, ...]:
        return tuple(job for job in self.queued if user in ("", job.user))

    async def records(self, job: str) -> tuple[jobs.Job, ...]:
        if not self.known:
            raise errors.NotThere(f"Slurm knows no job {job}")
        return self.known.pop(0) if len(self.known) > 1 else self.known[0]

    async def record(self, job: str) -> jobs.Job:
        return (await self.records(job))[0]


@dataclasses.dataclass
class Penstockd:
    """Knows these jobs, and is asked by `asker`."""

    jobs: tuple[descriptions.JobView, ...] = ()
    asker: str = "alice"
    sees_all: bool = False
    away: bool = False
    asked: list[tuple[int, ...]] = dataclasses.field(default_factory=list)

    async def describe(self, job_ids: Iterable[int] = ()) -> sources.Answer:
        self.asked.append(tuple(job_ids))
        if self.away:
            raise errors.PenstockError("penstockd does not answer on /s: refused")
        known = {view.job_id: view for view in self.jobs}
        found = [known.get(number, descriptions.JobView(number)) for number in self.asked[-1]] or list(
            self.jobs
        )
        return sources.Answer(found, self.sees_all, self.asker)
