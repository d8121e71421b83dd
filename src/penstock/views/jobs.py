"""Jobs of both worlds: those that wait or run (`penstock jobs`), and one with all that is known (`show`).

docs/reference/json.md describes every key. Times are UTC, as 2026-01-31T12:00:00Z. A job is named as one
types it (`job`: 17 or 20_3), and by the number that Slurm counts it by (`job_id`); both are text. What is not
known is null.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Literal

import msgspec

from penstock import errors, wellknown
from penstock.model import jobs, reasons, sentences, states
from penstock.model.descriptions import JobView, PodView, StepView
from penstock.slurm import pendingreasons as codes
from penstock.views import sources

MOST_DESCRIBED = 1000  # jobs that penstockd tells of in one answer


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why admission sent a job back to the queue; docs/reference/reasons.md lists the kinds."""

    kind: str
    node: str
    resource: str
    wanted: str
    free: str
    held_by: tuple[str, ...]
    pod: str
    detail: str
    since: datetime.datetime


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job has not started."""

    source: Literal["slurm", "kubernetes"]
    code: str
    text: str
    refusals: tuple[Refusal, ...] = ()


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits or runs."""

    job: str
    job_id: str
    array: str | None
    user: str
    name: str
    partition: str
    state: str
    reason: Reason | None
    restarts: int
    submitted: datetime.datetime | None
    started: datetime.datetime | None
    elapsed_seconds: int | None
    nodes: tuple[str, ...]
    pods: tuple[PodView, ...] | None
    """None: not the asker's to see."""

    @property
    def waits(self) -> bool:
        return self.state == states.JobState.PENDING


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """`penstock jobs`."""

    version: int = wellknown.JSON_VERSION
    jobs: tuple[Job, ...]
    problem: str = ""
    """Why nothing is known of pods."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a job."""

    at: datetime.datetime
    name: str
    text: str
    kind: str


class ShownJob(Job, frozen=True, kw_only=True):
    """A job whether or not it has ended."""

    tasks: int
    """How many tasks of an array it stands for: those that wait are one entry."""
    ended: datetime.datetime | None
    exit_code: int | None
    signal: int | None
    comment: str
    stdout: str
    stderr: str
    timeline: tuple[Step, ...] | None
    """None: not the asker's to see."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """`penstock show`: one job, or the tasks of an array."""

    version: int = wellknown.JSON_VERSION
    jobs: tuple[ShownJob, ...]
    problem: str = ""


async def queue(slurm: sources.Slurm, penstockd: sources.Penstockd, *, user: str = "") -> Queue:
    """Jobs that run, then those that wait; only this user's, if one is named."""
    queued = await slurm.queue(user=user)
    answer = await _told(penstockd, ())
    known = answer.by_job()
    found = (_job(job, known.get(job.job_id), hidden=answer.hides(job.user)) for job in queued)
    return Queue(problem=answer.problem, jobs=tuple(sorted(found, key=lambda job: job.waits)))


async def show(slurm: sources.Slurm, penstockd: sources.Penstockd, job: str) -> Shown:
    """One job (17 or 20_3), or the tasks of an array (20); NotThere when Slurm knows none."""
    if not job.replace("_", "", 1).isdigit():
        raise errors.UsageError(
            f"{job!r} is not a job id", hint="Use a number such as 17, or 20_3 for a task of an array."
        )
    records = await slurm.records(job)
    answer = await _told(penstockd, [record.job_id for record in records[:MOST_DESCRIBED]])
    known = answer.by_job()
    found = (_shown(one, known.get(one.job_id), hidden=answer.hides(one.user)) for one in records)
    return Shown(problem=answer.problem, jobs=tuple(found))


async def _told(penstockd: sources.Penstockd, job_ids: Iterable[int]) -> sources.Answer:
    """When nobody answers, an answer that says so: Slurm's side can be shown without."""
    try:
        return await penstockd.describe(job_ids)
    except errors.PenstockError as error:
        return sources.Answer([], sees_all=False, problem=error.message)


def _job(job: jobs.Job, view: JobView | None, *, hidden: bool) -> Job:
    """What Slurm says, with the pods; those of others are hidden from most."""
    return Job(
        job=job.shown_id,
        job_id=str(job.job_id),
        array=job.shown_id.partition("_")[0] if job.task else None,
        user=job.user,
        name=job.name,
        partition=job.partition,
        state=job.state,
        reason=_reason(job.state, job.reason, view),
        restarts=job.identity.restart,
        submitted=_moment(job.submitted),
        started=_moment(job.started),
        elapsed_seconds=job.elapsed,
        nodes=job.nodes,
        pods=None if hidden else view.pods if view else (),
    )


def _shown(job: jobs.Job, view: JobView | None, *, hidden: bool) -> ShownJob:
    """All that is known of one job; why it waits is no comment."""
    return ShownJob(
        **msgspec.structs.asdict(_job(job, view, hidden=hidden)),
        tasks=_tasks(job.task),
        ended=_moment(job.ended),
        exit_code=None if job.goes_on else job.exit_code,
        signal=None if job.goes_on else job.signal,
        comment=job.comment if job.own_comment is None else job.own_comment,
        stdout=job.stdout,
        stderr=job.stderr,
        timeline=None if hidden else tuple(map(_step, view.timeline)) if view else (),
    )


def _tasks(numbers: str) -> int:
    """How many 3 or [5-99%2] are; 1 for a list that Slurm has cut short."""
    if not numbers.startswith("["):
        return 1
    from penstock.sbatch.values import arrays, problem

    try:
        found = arrays.array(numbers[1:-1])
    except problem.Problem:
        return 1
    return found.count if found else 1


def _reason(state: str, code: str, view: JobView | None) -> Reason | None:
    """What Kubernetes lacked comes first: Slurm's own reason is then only when it tries again."""
    if state != states.JobState.PENDING:
        return None
    if view is not None and view.refusals:
        return Reason(
            source="kubernetes",
            code=code,
            text=sentences.refusals(view.refusals),
            refusals=tuple(map(_refusal, view.refusals)),
        )
    return Reason(source="slurm", code=code, text=codes.words(code)) if code else None


def _refusal(one: reasons.Refusal) -> Refusal:
    return Refusal(**msgspec.structs.asdict(one) | {"since": _known_moment(one.since)})


def _step(step: StepView) -> Step:
    return Step(at=_known_moment(step.at), name=step.name, text=step.text, kind=step.kind)


def _moment(seconds: int) -> datetime.datetime | None:
    return _known_moment(seconds) if seconds else None


def _known_moment(seconds: float) -> datetime.datetime:
    """From seconds since 1970."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
