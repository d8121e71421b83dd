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
from penstock.model import jobs, states
from penstock.results import contents, resultpaths, tails
from penstock.views import results, sources, threads

POLL = 0.2
ASK_SLURM = 2.0  # seconds between two questions whether the job still runs
COLLECTED_WITHIN = 10.0  # seconds


class Piece(msgspec.Struct, frozen=True):
    """What was new at one look."""

    data: bytes = b""
    began_again: bool = False
    """The file was emptied: the job was requeued."""


@dataclasses.dataclass
class Output:
    """One stream of one job, and how far it has been read."""

    slurm: sources.Slurm
    penstockd: sources.Penstockd
    folder: Path | None
    """Where the results of all jobs are."""
    job: str
    stream: Literal["stdout", "stderr"]
    time: clock.Clock
    record: jobs.Job = dataclasses.field(init=False)
    tail: tails.Tail = dataclasses.field(init=False, default_factory=lambda: tails.Tail(Path(os.devnull)))
    found: bool = dataclasses.field(init=False, default=False)
    """Whether anybody knows where the file is."""

    async def read(self, *, follow: bool) -> AsyncIterator[Piece]:
        """All of it, with `follow` until the job has ended; then the error, if there is more to be told.

        A job that was over before its file was known is read once its results are there.
        """
        if not resultpaths.JOB.fullmatch(self.job):
            raise errors.UsageError("which job?", hint="A number such as 17, or 20_3 in an array.")
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
        await threads.run(self._judge, followed=follow)

    async def _find(self) -> None:
        """Until something has been read, the file may still turn out to be another one."""
        path = None if self.tail.offset else await self._path()
        if path is not None:
            self.tail.path, self.found = path, True

    async def _path(self) -> Path | None:
        """The file the job writes; once it has ended, what was collected of it. None when nobody knows."""
        is_stderr = self.stream == "stderr"
        if not self.record.goes_on and (collected := await threads.run(self._collected)):
            return collected / (contents.STDERR if is_stderr else contents.STDOUT)
        try:  # where the running attempt writes, every pattern filled in
            (told,) = (await self.penstockd.describe((self.record.job_id,))).jobs
            named = os.fsdecode(told.stderr if is_stderr else told.stdout)
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
            hint = f"The job is {self.record.user}'s."
            raise errors.PenstockError(f"{self.tail.path} is not yours to read", hint=hint) from None
        if self.tail.began_again > restarts:
            yield Piece(began_again=True)

    def _collected(self) -> Path | None:
        return results.collected(self.folder, self.record.shown_id)

    def _is_whole(self) -> bool:
        """Of a job that is over: there is no more to come."""
        return bool(self.tail.offset or self.folder is None or self._collected())

    def _judge(self, *, followed: bool) -> None:
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
            waits = "It has not started." if record.state == states.JobState.PENDING else ""
            message = f"{path} is not there: job {self.job} is {record.state}"
            raise errors.NotThere(message, hint=record.comment or waits)
        if followed and not record.goes_on and record.state != states.JobState.COMPLETED:
            end = f"{record.state} {record.exit_code}:{record.signal}"
            raise errors.PenstockError(f"job {self.job} is {end}")

    def _tell_what_was_not_collected(self) -> None:
        """An empty file in the results may stand for one that the collector could not read; notes say so."""
        collected = self._collected()
        prefix = f"{self.tail.path.name}: "
        for note in resultpaths.read(collected, verify=False).summary.notes if collected else ():
            if note.startswith(prefix):
                message = f"job {self.job} has no {self.stream}: {note.removeprefix(prefix)}"
                raise errors.NotThere(message, hint=self.record.comment)
