"""One job as shown to users: from slurmctld while it remembers the job, else from the accounting."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from penstock import errors, wording
from penstock.model import jobs, numbers
from penstock.slurm import accounting, reader

_TASKS_NAMED = 8


async def record(slurm_conf: str, job: str) -> jobs.Job:
    """One job (17 or 17_3). UsageError if the id stands for several tasks of an array."""
    found = await records(slurm_conf, job)
    if len(found) > 1:
        named = wording.some([f"{one.shown_id} {one.state}" for one in found], _TASKS_NAMED)
        raise errors.UsageError(
            f"job {job} is an array: which of its tasks?",
            hint=f"{named}. `penstock show {job}` lists them.",
        )
    return found[0]


async def records(slurm_conf: str, job: str) -> tuple[jobs.Job, ...]:
    """The job or the tasks of an array (pending ones are one). NotThere if Slurm knows none."""
    accounted = {one.job_id: one for one in await accounting.records(slurm_conf, job)}
    live = {one.job_id: one for one in await _remembered(slurm_conf, job)}
    merged = {number: _recorded(one) for number, one in accounted.items()}
    merged |= {number: _updated(one, merged.get(number)) for number, one in live.items()}
    found = _meant(job, merged.values())
    if not found:
        raise errors.NotThere(f"Slurm knows no job {job}", hint="`squeue` and `sacct` list those it knows.")
    return tuple(sorted(found, key=_by_task))


def _by_task(job: jobs.Job) -> tuple[bool, int]:
    number = numbers.natural(job.task)
    return number is None, number or 0


def _meant(job: str, found: Iterable[jobs.Job]) -> list[jobs.Job]:
    """The requested jobs: scontrol prints the whole array for the id of its last task."""
    known = list(found)
    exact = [one for one in known if one.shown_id == job]
    if exact:
        return exact
    if "_" in job:
        return [one for one in known if "[" in one.task]
    tasks = [one for one in known if one.shown_id.startswith(f"{job}_")]
    return tasks or [one for one in known if str(one.job_id) == job]


async def _remembered(slurm_conf: str, job: str) -> tuple[jobs.Job, ...]:
    """Empty if slurmctld has forgotten the job (MinJobAge)."""
    try:
        return await reader.SlurmReader(slurm_conf).shown_jobs(job)
    except errors.SlurmUnavailable:
        raise
    except errors.SlurmError:
        return ()


def _recorded(known: jobs.JobRecord) -> jobs.Job:
    """Without restarts, which the accounting does not count."""
    return jobs.Job(
        identity=jobs.JobIdentity(job_id=known.job_id, restart=0, uid=known.uid),
        state=known.state,
        partition=known.partition,
        shown_id=known.shown_id,
        user=known.user,
        name=known.name,
        nodes=known.nodes,
        submitted=int(known.submitted or 0),
        started=int(known.started or 0),
        ended=int(known.ended or 0),
        elapsed=known.elapsed,
        exit_code=known.exit_code or 0,
        signal=known.signal or 0,
        comment=known.comment,
    )


def _updated(job: jobs.Job, known: jobs.Job | None) -> jobs.Job:
    """slurmctld's data overrides the accounting's, which is updated a moment later."""
    if known is None or job.comment:
        return job
    return dataclasses.replace(job, comment=known.comment)
