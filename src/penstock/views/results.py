"""Results of jobs, read with the user's own permissions, or the reason why there are none."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from penstock import errors, wellknown
from penstock.results import resultpaths
from penstock.views import sources, threads


class Results(msgspec.Struct, frozen=True, kw_only=True):
    version: int = wellknown.JSON_VERSION
    results: tuple[resultpaths.Found, ...]

    @property
    def are_good(self) -> bool:
        """Whether everything was collected and, if verified, is unchanged."""
        return all(
            found.summary.complete and (found.checked is None or found.checked.is_clean)
            for found in self.results
        )


class NoResults(errors.NotThere):
    """There are no results (yet)."""


async def results(slurm: sources.Slurm, folder: Path, job: str, *, verify: bool) -> Results:
    """Of a job (17 or 20_3) or an array (20); with `verify` files are compared with checksums.txt."""
    folders = await _find(slurm, folder, job)
    found = [await threads.run(resultpaths.read, one, verify=verify) for one in folders]
    return Results(results=tuple(found))


async def _find(slurm: sources.Slurm, folder: Path, job: str) -> list[Path]:
    if found := await threads.run(resultpaths.folders, folder, job):
        return found
    record = (await slurm.records(job))[0]
    if one := await threads.run(collected, folder, record.shown_id):
        return [one]
    if await threads.run(resultpaths.is_being_collected, folder, record.job_id):
        raise NoResults(f"the results of job {job} are being collected", hint="Try again in a moment.")
    raise NoResults(
        f"no results of job {job}, which is {record.state}",
        hint="A job has results after it ran in pods and ended. A job that never started has none.",
    )


def collected(folder: Path | None, job: str) -> Path | None:
    """The results folder of one job; None for pending tasks such as 20_[5-9]."""
    if folder is None or not resultpaths.JOB.fullmatch(job) or not os.path.isdir(folder):  # noqa: PTH112  # never raises
        return None
    found = resultpaths.folders(folder, job)
    return found[0] if len(found) == 1 else None
