"""Finds and reads a job's output, during and after the job, with the user's own permissions."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import msgspec

from penstock import clock, errors
from penstock.model import jobs, states
from penstock.results import contents, resultpaths, tails
from penstock.views import results, sources, threads

POLL = 0.2
ASK_SLURM = 2.0  # seconds between two queries of the job's state
COLLECTED_WITHIN = 10.0  # seconds


class Piece(msgspec.Struct, frozen=True):
    data: bytes = b""
    began_again: bool = False
    """The file was truncated, because the job was requeued."""


@dataclasses.dataclass
class Output:
    """One stream of one job, and how far it has been read."""

    slurm: sources.Slurm
    penstockd: sources.Penstockd
    folder: Path | None
    """The results folder."""
    job: str
    stream: Literal["stdout", "stderr"]
    time: clock.Clock
    record: jobs.Job = dataclasses.field(init=False)
    tail: tails.Tail = dataclasses.field(init=False, default_factory=lambda: tails.Tail(Path(os.devnull)))
    found: bool = dataclasses.field(init=False, default=False)
    """Whether the path is known."""

    async def read(self, *, follow: bool) -> AsyncIterator[Piece]:
        """Yield the output, with `follow` until the job has ended. Raises if there is none or the job failed.

        A job that ended before its path was known is read from its results.
        """
        if not resultpaths.JOB.fullmatch(self.job):
            raise errors.UsageError(
                f"{self.job!r} is not a job id",
                hint="Use a number such as 17, or 20_3 for a task of an array.",
            )
        self.record = await self.slurm.record(self.job)
        asked = until = self.time.now()
        while True:
            await self._find()
            async for piece in self._more():
                yield piece
            now = self.time.now()
            if not follow or (
                not self.record.goes_on and (now >= until or await threads.run(self._is_whole))
            ):
                break
            if self.record.goes_on and now - asked > ASK_SLURM:
                self.record = await self.slurm.record(self.job)
                asked, until = now, now + COLLECTED_WITHIN
            await self.time.sleep(POLL)
        await threads.run(self._raise_problem, followed=follow)

    async def _find(self) -> None:
        """Until something has been read, the path may still change."""
        path = None if self.tail.offset else await self._path()
        if path is not None:
            self.tail.path, self.found = path, True

    async def _path(self) -> Path | None:
        """The file that the job writes, or its collected copy once it has ended; None if unknown."""
        is_stderr = self.stream == "stderr"
        if not self.record.goes_on and (collected := await threads.run(self._collected)):
            return collected / (contents.STDERR if is_stderr else contents.STDOUT)
        try:  # penstockd knows the path of the running attempt with all patterns expanded
            (view,) = (await self.penstockd.describe((self.record.job_id,))).jobs
            named = os.fsdecode(view.stderr if is_stderr else view.stdout)
        except errors.PenstockError:
            named = ""
        named = named or (self.record.stderr if is_stderr else self.record.stdout)
        return Path(named) if named else None

    async def _more(self) -> AsyncIterator[Piece]:
        restarts, chunks = self.tail.began_again, self.tail.more()
        try:
            while data := await threads.run(next, chunks, b""):
                yield Piece(data)
        except PermissionError:
            hint = f"The job belongs to {self.record.user}."
            raise errors.PenstockError(f"no permission to read {self.tail.path}", hint=hint) from None
        if self.tail.began_again > restarts:
            yield Piece(began_again=True)

    def _collected(self) -> Path | None:
        return results.collected(self.folder, self.record.shown_id)

    def _is_whole(self) -> bool:
        """Whether an ended job has no more output to come."""
        return bool(self.tail.offset or self.folder is None or self._collected())

    def _raise_problem(self, *, followed: bool) -> None:
        """Raise an error if there is no output, or the followed job failed."""
        record, path = self.record, self.tail.path
        if not self.tail.offset and not record.goes_on:
            self._raise_if_uncollected()
        if not self.found:
            raise errors.NotThere(
                f"{self.stream} path of job {record.shown_id} is unknown",
                hint=f"The job is {record.state}. A job that has not started has no output.",
            )
        if not path.exists():
            pending = "It has not started." if record.state == states.JobState.PENDING else ""
            message = f"{path} does not exist: job {self.job} is {record.state}"
            raise errors.NotThere(message, hint=record.comment or pending)
        if followed and not record.goes_on and record.state != states.JobState.COMPLETED:
            end = f"{record.state} {record.exit_code}:{record.signal}"
            raise errors.PenstockError(f"job {self.job} is {end}")

    def _raise_if_uncollected(self) -> None:
        """An empty collected file may stand for one that the collector could not read, as a note says."""
        collected = self._collected()
        prefix = f"{self.tail.path.name}: "
        for note in resultpaths.read(collected, verify=False).summary.notes if collected else ():
            if note.startswith(prefix):
                message = f"job {self.job} has no {self.stream}: {note.removeprefix(prefix)}"
                raise errors.NotThere(message, hint=self.record.comment)
