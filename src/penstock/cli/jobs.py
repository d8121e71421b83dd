"""`penstock jobs` and `penstock show`: jobs of Slurm with their pods."""

from __future__ import annotations

import asyncio
import collections
import sys
from collections.abc import Iterable, Sequence

import click

from penstock.cli import options, output
from penstock.model.descriptions import PodView
from penstock.views import jobs as view
from penstock.views import sources


@click.command()
@click.option("--user", default="", help="Only this user's jobs.")
@click.option("-r", "--array", "unfolded", is_flag=True, help="One line for each array task.")
@options.form_option
def jobs(user: str, form: str, *, unfolded: bool) -> None:
    """List running jobs with their pods, then waiting jobs with the reason.

    An array is one line with its tasks counted by state; JSON has every task (docs/reference/json.md).

    \b
    Examples:
      penstock jobs
      penstock jobs --array
      penstock jobs --user alice --format json
    """
    queue = asyncio.run(view.queue(sources.SlurmCommands(), sources.Socket(), user=user))
    output.answer(queue, form, lambda found: print_jobs(found, unfolded=unfolded))
    _exit_on_problem(queue.problem)


def _exit_on_problem(problem: str) -> None:
    if problem:
        click.echo(f"penstock: {problem}; showing jobs without pods", err=True)
        sys.exit(1)


def _hidden_pods(problem: str) -> str:
    return "unknown" if problem else "hidden (another user's)"


def print_jobs(queue: view.Queue, *, unfolded: bool = False) -> None:
    unseen = _hidden_pods(queue.problem)
    shown = output.columns("job", "user", "name", "partition", "Slurm", "time", "where", "pods")
    families: dict[str, list[view.Job]] = {}
    for job in queue.jobs:
        families.setdefault(job.job if unfolded else job.array or job.job, []).append(job)
    for family in families.values():
        shown.add_row(*(_row(family[0], unseen) if len(family) == 1 else _folded(family, unseen)))
    output.screen().print(shown if queue.jobs else "No jobs waiting or running.")


def _row(job: view.Job, unseen: str) -> tuple[str, ...]:
    where = _waits_for(job) if job.waits else ",".join(job.nodes)
    time, pods = output.duration(job.elapsed_seconds), _pods(job, unseen)
    return job.job, job.user, job.name, job.partition, job.state, time, where, pods


def _folded(family: Sequence[view.Job], unseen: str) -> tuple[str, ...]:
    first = family[0]
    nodes = dict.fromkeys(node for job in family for node in job.nodes)
    where = ",".join(nodes) or next(filter(None, map(_waits_for, family)), "")
    statuses = counted(pod.status for job in family for pod in job.pods or ())
    longest = max((job.elapsed_seconds or 0 for job in family), default=0)
    pods = unseen if first.pods is None else statuses or "-"
    states = counted(job.state for job in family)
    job, time = f"{first.array}_[{len(family)} tasks]", output.duration(longest)
    return job, first.user, first.name, first.partition, states, time, where, pods


def counted(words: Iterable[str]) -> str:
    """Such as `3 RUNNING, 97 PENDING`."""
    return ", ".join(f"{count} {word}" for word, count in collections.Counter(words).items())


def _waits_for(job: view.Job) -> str:
    """Kubernetes' reason in words, Slurm's as in squeue."""
    if job.reason is None:
        return ""
    return job.reason.text if job.reason.source == "kubernetes" else f"({job.reason.code})"


def _pods(job: view.Job, unseen: str) -> str:
    if job.pods is None:
        return "-" if job.waits else unseen
    return ", ".join(f"{pod.node or '-'}: {pod.status}" for pod in job.pods) or "-"


@click.command()
@click.argument("job")
@options.form_option
def show(job: str, form: str) -> None:
    """Show one job: state, pods, image, output, reason, and its timeline.

    Of an array, one line for each task. Exit code 3: Slurm knows no such job.

    \b
    Examples:
      penstock show 17
      penstock show 20                         all tasks of an array
      penstock show 20_3 --format json
    """
    found = asyncio.run(view.show(sources.SlurmCommands(), sources.Socket(), job))
    output.answer(found, form, print_shown)
    _exit_on_problem(found.problem)


def print_shown(found: view.Shown) -> None:
    unseen = _hidden_pods(found.problem)
    if len(found.jobs) == 1:
        _print_job(found.jobs[0], unseen)
    else:
        _print_tasks(found.jobs, unseen)


def _print_tasks(shown: Sequence[view.ShownJob], unseen: str) -> None:
    first, out = shown[0], output.screen()
    states = counted(state for job in shown for state in [job.state] * job.tasks)
    out.print(f"array {first.array} {first.name} of {first.user} in {first.partition}: {states}")
    rows = output.columns("task", "state", "time", "where", "pods", "")
    for job in shown:
        waits = job.reason.text if job.reason else ""
        time, where = output.duration(job.elapsed_seconds), ",".join(job.nodes)
        rows.add_row(job.job, _state(job), time, where, _pods(job, unseen), waits or job.comment)
    out.print(rows)
    out.print(output.styled(f"`penstock show {first.job}` shows one task in full.", "dim"))


def _print_job(shown: view.ShownJob, unseen: str) -> None:
    from rich import table

    out = output.screen()
    facts = table.Table(box=None, show_header=False, padding=(0, 2))
    for name, value in _facts(shown):
        facts.add_row(output.styled(name, "bold"), value)
    out.print(facts)
    if shown.pods is None or shown.timeline is None:
        out.print(output.styled(f"Pods and timeline: {unseen}.", "dim"))
        return
    pods = output.columns("rank", "pod", "node", "status", "image", "reason", title="Pods")
    for pod in shown.pods:
        pods.add_row(
            str(pod.rank), f"{pod.namespace}/{pod.name}", pod.node, pod.status, pod.image, pod.reason
        )
    out.print(pods if shown.pods else output.styled("No pods now.", "dim"))
    _print_warnings(shown.pods)
    _print_steps(shown.timeline, waits=shown.waits)


def _print_warnings(pods: Sequence[PodView]) -> None:
    """Kubernetes' own warnings, each once with its pods."""
    found: dict[str, list[str]] = {}
    for pod in pods:
        for warning in pod.warnings:
            found.setdefault(warning, []).append(pod.name)
    rows = output.columns("pod", "warning", title="Warnings of Kubernetes")
    for warning, names in found.items():
        rows.add_row(names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more", warning)
    if found:
        output.screen().print(rows)


def _print_steps(timeline: Sequence[view.Step], *, waits: bool) -> None:
    steps = output.columns("when", "after", "step", "", title="Timeline")
    for before, step in zip((*timeline[:1], *timeline), timeline, strict=False):
        after = (step.at - before.at).total_seconds()
        steps.add_row(output.moment(step.at, exact=True), f"+{after:.3f} s", step.name, step.text)
    nothing = "Not tried to start yet." if waits else "penstockd has no timeline of this job."
    output.screen().print(steps if timeline else output.styled(nothing, "dim"))


def _facts(job: view.ShownJob) -> list[tuple[str, str]]:
    waits = f"{job.reason.text} ({job.reason.code})" if job.reason else ""
    found = [
        ("job", f"{job.job} {job.name} of {job.user} in {job.partition}"),
        ("state", f"{_state(job)}, {output.duration(job.elapsed_seconds)}, restarts {job.restarts}"),
        ("reason", waits),
        ("submitted", output.moment(job.submitted)),
        ("started", output.moment(job.started)),
        ("ended", output.moment(job.ended)),
        ("nodes", ",".join(job.nodes)),
        ("comment", job.comment),
        ("output", job.stdout),
        ("errors", job.stderr if job.stderr != job.stdout else ""),
    ]
    return [(name, value) for name, value in found if value]


def _state(job: view.ShownJob) -> str:
    """With exit code and signal once it has ended."""
    return job.state if job.exit_code is None else f"{job.state} {job.exit_code}:{job.signal or 0}"
