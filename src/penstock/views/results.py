"""What is left of jobs in the results folder, read with the asker's own rights; and why there is nothing."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from penstock import errors, wellknown
from penstock.results import resultpaths
from penstock.views import sources, threads


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """Of one job, or of the tasks of an array."""

    version: int = wellknown.JSON_VERSION
    results: tuple[resultpaths.Found, ...]

    @property
    def are_good(self) -> bool:
        """Whether everything was collected and, where that was verified, has not changed since."""
        return all(
            found.summary.complete and (found.checked is None or found.checked.is_clean)
            for found in self.results
        )


class NoResults(errors.NotThere):
    """There are none, or none yet."""


async def results(slurm: sources.Slurm, folder: Path, job: str, *, verify: bool) -> Results:
    """Of a job (17 or 20_3) or an array (20); with `verify` every file is compared with checksums.txt."""
    folders = await _find(slurm, folder, job)
    return Results(
        results=tuple([await threads.run(resultpaths.read, one, verify=verify) for one in folders])
    )


async def _find(slurm: sources.Slurm, folder: Path, job: str) -> list[Path]:
    """The job's folders; NoResults with what is known when there are none."""
    if found := await threads.run(resultpaths.folders, folder, job):
        return found
    record = (await slurm.records(job))[0]
    if one := await threads.run(collected, folder, record.shown_id):
        return [one]
    if await threads.run(resultpaths.is_being_collected, folder, record.job_id):
        raise NoResults(f"the results of job {job} are being collected", hint="Ask again in a moment.")
    raise NoResults(
        f"there are no results of job {job}, which is {record.state}",
        hint="They come when a job that runs as pods has ended. A job that never started has none.",
    )


def collected(folder: Path | None, job: str) -> Path | None:
    """The folder of one job that has been collected; 20_[5-9], tasks that never started, has none."""
    if folder is None or not resultpaths.JOB.fullmatch(job) or not os.path.isdir(folder):  # noqa: PTH112  # never raises
        return None
    found = resultpaths.folders(folder, job)
    return found[0] if len(found) == 1 else None
