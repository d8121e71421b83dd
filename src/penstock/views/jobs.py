"""What `--format json` prints, as types: docs/reference/json.md describes every key of them.

Times are UTC, as 2026-01-31T12:00:00Z. A job is named as one types it (`job`: 17 or 20_3), and by the number
that Slurm counts it by (`job_id`); both are text. What is not known is null. `version` changes when a key
goes or means something else; new keys may come. Those of `inbox`, `nodes` and `doctor` are in
intake/status.py, cli/nodes.py and cli/doctor.py.
"""

from __future__ import annotations

import datetime
from typing import Any, Literal

import click
import msgspec

from penstock.model import reasons, sentences, views
from penstock.results import finding
from penstock.slurm import comments, showing
from penstock.slurm import reasons as codes

VERSION = 1


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
    pods: tuple[views.PodView, ...] | None
    """None: not the asker's to see."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """`penstock jobs`."""

    version: int = VERSION
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

    version: int = VERSION
    jobs: tuple[ShownJob, ...]
    problem: str = ""


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """`penstock results`."""

    version: int = VERSION
    results: tuple[finding.Found, ...]


def echo(document: Any) -> None:
    """Print it for programs."""
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))


def job_of(job: showing.QueuedJob, view: views.JobView | None, *, hidden: bool) -> Job:
    """A job of the queue with its pods; those of others are hidden from most."""
    return Job(
        job=job.shown_id,
        job_id=str(job.job_id),
        array=job.array or None,
        user=job.user,
        name=job.name,
        partition=job.partition,
        state=job.state,
        reason=_reason(job.state, job.reason, view),
        restarts=job.restarts,
        submitted=job.submitted,
        started=job.started,
        elapsed_seconds=job.elapsed,
        nodes=job.nodes,
        pods=None if hidden else view.pods if view else (),
    )


def shown_of(record: showing.JobRecord, view: views.JobView | None, *, hidden: bool) -> ShownJob:
    """All that is known of one job; why it waits is no comment."""
    own_comment = comments.own(record.comment)
    return ShownJob(
        job=record.shown_id,
        job_id=str(record.job_id),
        array=record.shown_id.partition("_")[0] if record.task else None,
        user=record.user,
        name=record.name,
        partition=record.partition,
        state=record.state,
        reason=_reason(record.state, record.reason, view),
        restarts=record.restarts,
        submitted=record.submitted,
        started=record.started,
        tasks=_tasks(record.task),
        ended=record.ended,
        elapsed_seconds=record.elapsed,
        exit_code=None if record.goes_on else record.exit_code,
        signal=None if record.goes_on else record.signal,
        nodes=record.nodes,
        comment=record.comment if own_comment is None else own_comment,
        stdout=record.stdout,
        stderr=record.stderr,
        pods=None if hidden else view.pods if view else (),
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


def _reason(state: str, code: str, view: views.JobView | None) -> Reason | None:
    """What Kubernetes lacked comes first: Slurm's own reason is then only when it tries again."""
    if state != "PENDING":
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
    values = {field: getattr(one, field) for field in one.__struct_fields__}
    return Refusal(**values | {"since": moment(one.since)})


def _step(step: views.StepView) -> Step:
    return Step(at=moment(step.at), name=step.name, text=step.text, kind=step.kind)


def moment(seconds: float) -> datetime.datetime:
    """From seconds since 1970."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
