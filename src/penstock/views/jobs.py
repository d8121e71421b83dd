"""Jobs in Slurm with their pods: those that wait or run (`penstock jobs`), and all of one job (`show`).

docs/reference/json.md describes every key. Times are UTC, as 2026-01-31T12:00:00Z. `job` is the id for users
(17 or 20_3), `job_id` that of the task in Slurm; both are text. Unknown values are null.
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

MOST_DESCRIBED = 1000  # jobs in one answer of penstockd


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why admission requeued a job; docs/reference/reasons.md lists the kinds."""

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
    source: Literal["slurm", "kubernetes"]
    code: str
    text: str
    refusals: tuple[Refusal, ...] = ()


class Job(msgspec.Struct, frozen=True, kw_only=True):
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
    """None if the user may not see them."""

    @property
    def waits(self) -> bool:
        return self.state == states.JobState.PENDING


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    version: int = wellknown.JSON_VERSION
    jobs: tuple[Job, ...]
    problem: str = ""
    """Why pods could not be read."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime.datetime
    name: str
    text: str
    kind: str


class ShownJob(Job, frozen=True, kw_only=True):
    tasks: int
    """Number of array tasks in this entry: pending tasks share one."""
    ended: datetime.datetime | None
    exit_code: int | None
    signal: int | None
    comment: str
    stdout: str
    stderr: str
    timeline: tuple[Step, ...] | None
    """None if the user may not see it."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """`penstock show`: one job, or the tasks of an array."""

    version: int = wellknown.JSON_VERSION
    jobs: tuple[ShownJob, ...]
    problem: str = ""


async def queue(slurm: sources.Slurm, penstockd: sources.Penstockd, *, user: str = "") -> Queue:
    """Running jobs, then waiting ones; of one user if named."""
    queued = await slurm.queue(user=user)
    answer = await _describe(penstockd, ())
    known = answer.by_job()
    found = (_job(job, known.get(job.job_id), hidden=answer.hides(job.user)) for job in queued)
    return Queue(problem=answer.problem, jobs=tuple(sorted(found, key=lambda job: job.waits)))


async def show(slurm: sources.Slurm, penstockd: sources.Penstockd, job: str) -> Shown:
    """One job (17 or 20_3), or the tasks of an array (20). Raises NotThere if Slurm knows none."""
    if not job.replace("_", "", 1).isdigit():
        raise errors.UsageError(
            f"{job!r} is not a job id", hint="Use a number such as 17, or 20_3 for a task of an array."
        )
    records = await slurm.records(job)
    answer = await _describe(penstockd, [record.job_id for record in records[:MOST_DESCRIBED]])
    known = answer.by_job()
    found = (_shown(one, known.get(one.job_id), hidden=answer.hides(one.user)) for one in records)
    return Shown(problem=answer.problem, jobs=tuple(found))


async def _describe(penstockd: sources.Penstockd, job_ids: Iterable[int]) -> sources.Answer:
    """If penstockd does not answer, an answer that says so: Slurm's side can be shown without pods."""
    try:
        return await penstockd.describe(job_ids)
    except errors.PenstockError as error:
        return sources.Answer([], sees_all=False, problem=error.message)


def _job(job: jobs.Job, view: JobView | None, *, hidden: bool) -> Job:
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
        submitted=_utc(job.submitted) if job.submitted else None,
        started=_utc(job.started) if job.started else None,
        elapsed_seconds=job.elapsed,
        nodes=job.nodes,
        pods=None if hidden else view.pods if view else (),
    )


def _shown(job: jobs.Job, view: JobView | None, *, hidden: bool) -> ShownJob:
    """The comment without Penstock's reason, which is shown separately."""
    return ShownJob(
        **msgspec.structs.asdict(_job(job, view, hidden=hidden)),
        tasks=_tasks(job.task),
        ended=_utc(job.ended) if job.ended else None,
        exit_code=None if job.goes_on else job.exit_code,
        signal=None if job.goes_on else job.signal,
        comment=job.comment if job.own_comment is None else job.own_comment,
        stdout=job.stdout,
        stderr=job.stderr,
        timeline=None if hidden else tuple(map(_step, view.timeline)) if view else (),
    )


def _tasks(numbers: str) -> int:
    """The number of tasks in 3 or [5-99%2]; 1 for a list that Slurm has truncated."""
    if not numbers.startswith("["):
        return 1
    from penstock.sbatch.values import arrays, problem

    try:
        found = arrays.array(numbers[1:-1])
    except problem.Problem:
        return 1
    return found.count if found else 1


def _reason(state: str, code: str, view: JobView | None) -> Reason | None:
    """A refusal comes first: Slurm's reason is then only the time of the next try."""
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
    return Refusal(**msgspec.structs.asdict(one) | {"since": _utc(one.since)})


def _step(step: StepView) -> Step:
    return Step(at=_utc(step.at), name=step.name, text=step.text, kind=step.kind)


def _utc(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
