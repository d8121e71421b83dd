"""`penstock jobs` and `penstock show`: both worlds in one table."""

from __future__ import annotations

import asyncio
import datetime
import os

import click
import msgspec

from penstock import errors, wellknown
from penstock.cli import asking, screens
from penstock.model import views
from penstock.slurm import showing

DEFAULT_CONF = "/etc/slurm/slurm.conf"
as_format = click.option(
    "--format", "style", type=click.Choice(["table", "json"]), default="table", show_default=True
)


class JoinedJob(msgspec.Struct, frozen=True):
    """A job of the queue with its pods."""

    slurm: showing.QueuedJob
    pods: tuple[views.PodView, ...]
    waits_for: str
    """What its nodes lacked in Kubernetes; Slurm's own reason is then only when it tries again."""


class ShownJob(msgspec.Struct, frozen=True):
    """All that is known of one job."""

    slurm: showing.JobRecord
    pods: tuple[views.PodView, ...]
    timeline: tuple[views.StepView, ...]


def slurm_conf() -> str:
    return os.environ.get(wellknown.ENV_SLURM_CONF, DEFAULT_CONF)


@click.command()
@click.option("--user", default="", help="Only this user's jobs.")
@as_format
def jobs(user: str, style: str) -> None:
    """List jobs that wait or run, with their pods, or with what they wait for.

    \b
    Examples:
      penstock jobs
      penstock jobs --user alice --format json
    """
    queue = asyncio.run(showing.queue(slurm_conf(), user=user))
    views_by_job = {view.job_id: view for view in asking.describe()}
    joined = [_joined(job, views_by_job.get(job.job_id)) for job in queue]
    if style == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(joined), indent=2))
    else:
        _print_jobs(joined)


def _joined(job: showing.QueuedJob, view: views.JobView | None) -> JoinedJob:
    if view is None:
        return JoinedJob(job, (), "")
    return JoinedJob(job, view.pods, view.waits_for if job.state == "PENDING" else "")


def _print_jobs(joined: list[JoinedJob]) -> None:
    shown = screens.columns("job", "user", "name", "partition", "Slurm", "time", "where", "pods")
    for job in joined:
        slurm = job.slurm
        pods = ", ".join(f"{pod.node or '-'}: {pod.status}" for pod in job.pods) or "-"
        row = (
            slurm.shown_id,
            slurm.user,
            slurm.name,
            slurm.partition,
            slurm.state,
            slurm.time,
            job.waits_for or slurm.where,
            pods,
        )
        shown.add_row(*row)
    screens.screen().print(shown if joined else "No jobs wait or run.")


@click.command()
@click.argument("job")
@as_format
def show(job: str, style: str) -> None:
    """Show one job on both sides: state, pods, image, output, reason, and what happened when.

    \b
    Examples:
      penstock show 17
      penstock show 20_3 --format json
    """
    if not job.replace("_", "", 1).isdigit():
        raise errors.UsageError(
            f"{job!r} is not a job id", hint="Use a number such as 17, or 20_3 for a task of an array."
        )
    record = asyncio.run(showing.record(slurm_conf(), job))
    (view,) = asking.describe((record.job_id,))
    shown = ShownJob(record, view.pods, view.timeline)
    if style == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(shown), indent=2))
    else:
        _print_job(shown)


def _print_job(shown: ShownJob) -> None:
    from rich import table

    out = screens.screen()
    facts = table.Table(box=None, show_header=False, padding=(0, 2))
    for name, value in _facts(shown.slurm):
        facts.add_row(screens.styled(name, "bold"), value)
    out.print(facts)
    pods = screens.columns("rank", "pod", "node", "status", "image", "reason", title="Pods")
    for pod in shown.pods:
        pods.add_row(
            str(pod.rank), f"{pod.namespace}/{pod.name}", pod.node, pod.status, pod.image, pod.reason
        )
    out.print(pods if shown.pods else screens.styled("No pods now.", "dim"))
    steps = screens.columns("when", "after", "step", "", title="What happened")
    before = shown.timeline[0].at if shown.timeline else 0.0
    for step in shown.timeline:
        at = datetime.datetime.fromtimestamp(step.at).strftime("%H:%M:%S.%f")[:-3]
        steps.add_row(at, f"+{step.at - before:.3f} s", step.name, step.text)
        before = step.at
    forgotten = screens.styled("penstockd remembers nothing of this job.", "dim")
    out.print(steps if shown.timeline else forgotten)


def _facts(job: showing.JobRecord) -> list[tuple[str, str]]:
    found = [
        ("job", f"{job.shown_id} {job.name} of {job.user} in {job.partition}"),
        ("state", f"{job.state} {job.exit_code}, {job.elapsed}, restarts {job.restarts}"),
        ("nodes", job.nodes),
        ("reason", job.comment),
        ("output", job.stdout),
        ("errors", job.stderr if job.stderr != job.stdout else ""),
    ]
    return [(name, value) for name, value in found if value]
