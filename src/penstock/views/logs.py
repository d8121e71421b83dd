"""A job's output, while it runs and afterwards: where it is, and what is in it.

Files are read with the asker's own rights, so nobody sees more than the kernel lets them.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import msgspec

from penstock import clock, errors
from penstock.results import finding, gathering, tailing
from penstock.slurm import showing
from penstock.views import results, sources, threads

POLL = 0.2
ASK_SLURM = 2.0  # seconds between two questions whether the job still runs
COLLECTED_WITHIN = 10.0  # seconds
Stream = Literal["stdout", "stderr"]


class Piece(msgspec.Struct, frozen=True):
    """What was new at one look."""

    data: bytes = b""
    began_again: bool = False
    """Whether the file had been emptied before: the job was requeued."""


@dataclasses.dataclass(kw_only=True)
class Output:
    """One stream of one job, and how far it has been read."""

    slurm: sources.Slurm
    penstockd: sources.Penstockd
    folder: Path | None
    job: str
    stream: Stream
    time: clock.Clock
    record: showing.JobRecord
    tail: tailing.Tail = dataclasses.field(default_factory=lambda: tailing.Tail(Path(os.devnull)))
    found: bool = False
    """Whether anybody knows where the file is."""

    async def find(self) -> None:
        """Until something has been read, the file may still turn out to be another one."""
        path = None if self.tail.offset else await self._path()
        if path is not None:
            self.tail.path, self.found = path, True

    async def _path(self) -> Path | None:
        """The file the job writes; once it has ended, what was collected of it. None when nobody knows."""
        if not self.record.goes_on:
            collected = await threads.run(self.collected)
            if collected is not None:
                return collected / (gathering.STDERR if self.stream == "stderr" else gathering.STDOUT)
        named = await self._from_penstockd()
        named = named or (self.record.stderr if self.stream == "stderr" else self.record.stdout)
        return Path(named) if named else None

    def collected(self) -> Path | None:
        return results.collected(self.folder, self.record.shown_id)

    async def _from_penstockd(self) -> str:
        """Where the running attempt writes, every pattern filled in; nothing when penstockd is away."""
        try:
            (view,) = (await self.penstockd.describe((self.record.job_id,))).jobs
        except errors.PenstockError:
            return ""
        return os.fsdecode(view.stderr if self.stream == "stderr" else view.stdout)

    async def more(self) -> AsyncIterator[Piece]:
        """What is new."""
        restarts, chunks = self.tail.began_again, self.tail.more()
        while data := await threads.run(next, chunks, b""):
            yield Piece(data)
        if self.tail.began_again > restarts:
            yield Piece(began_again=True)

    async def until_the_end(self) -> AsyncIterator[Piece]:
        """Until Slurm says that the job is over, and all of its output has been read."""
        asked = self.time.now()
        while self.record.goes_on:
            await self.find()
            async for piece in self.more():
                yield piece
            if self.time.now() - asked > ASK_SLURM:
                asked = self.time.now()
                self.record = await self.slurm.record(self.job)
                await self.find()
            await self.time.sleep(POLL)
        async for piece in self._rest():
            yield piece

    async def _rest(self) -> AsyncIterator[Piece]:
        """A job that was over before its file was known is read once its results are there."""
        deadline = self.time.now() + COLLECTED_WITHIN
        async for piece in self.more():
            yield piece
        while not self.tail.offset and self.folder and self.time.now() < deadline:
            await self.find()
            async for piece in self.more():
                yield piece
            if await threads.run(self.collected):
                return
            await self.time.sleep(POLL)

    def judge(self, *, followed: bool) -> None:
        """Raise what output alone does not tell: there is none, or the job that was followed failed."""
        record, path = self.record, self.tail.path
        if not self.tail.offset and not record.goes_on:
            self._tell_what_was_not_collected()
        if not self.found:
            raise errors.NotThere(
                f"the path of job {record.shown_id}'s {self.stream} is not known",
                hint=f"It is {record.state}; a job that has not started has written nothing.",
            )
        if not path.exists():
            hint = record.comment or ("" if record.state != "PENDING" else "It has not started.")
            raise errors.NotThere(f"{path} is not there: job {self.job} is {record.state}", hint=hint)
        if followed and not record.goes_on and record.state != "COMPLETED":
            end = f"{record.exit_code or 0}:{record.signal or 0}"
            raise errors.PenstockError(f"job {self.job} is {record.state} {end}")

    def _tell_what_was_not_collected(self) -> None:
        """An empty file in the results may stand for one that the collector could not read; notes say so."""
        collected = self.collected()
        if collected is None:
            return
        prefix = f"{self.tail.path.name}: "
        for note in finding.read(collected, verify=False).summary.notes:
            if note.startswith(prefix):
                message = f"job {self.job} has no {self.stream}: {note.removeprefix(prefix)}"
                raise errors.NotThere(message, hint=self.record.comment)


async def output(
    slurm: sources.Slurm,
    penstockd: sources.Penstockd,
    job: str,
    *,
    folder: Path | None,
    stream: Stream,
    follow: bool,
    time: clock.Clock,
) -> AsyncIterator[Piece]:
    """All of it, with `follow` until the job has ended; then the error, if there is something to be told.

    `folder` is where the results of all jobs are.
    """
    if not finding.JOB.fullmatch(job):
        raise errors.UsageError("which job?", hint="A number such as 17, or 20_3 in an array.")
    record = await slurm.record(job)
    found = Output(
        slurm=slurm, penstockd=penstockd, folder=folder, job=job, stream=stream, time=time, record=record
    )
    await found.find()
    try:
        async for piece in found.more():
            yield piece
        if follow and found.record.goes_on:
            async for piece in found.until_the_end():
                yield piece
    except PermissionError:
        hint = f"The job is {record.user}'s."
        raise errors.PenstockError(f"{found.tail.path} is not yours to read", hint=hint) from None
    await threads.run(found.judge, followed=follow)
