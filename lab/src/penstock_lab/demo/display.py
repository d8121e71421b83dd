"""The demo's output: queue and pods side by side while it runs, then output files and sacct's records."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box, columns, panel, syntax, table, text

from penstock.kube import podview, types
from penstock_lab.demo import demostate, scenario

_STATE_COLOURS = {
    "R": "green",
    "PD": "yellow",
    "CG": "cyan",
    "COMPLETED": "green",
    "FAILED": "red",
    "CANCELLED": "magenta",
}


def script(job: scenario.DemoJob) -> panel.Panel:
    code = syntax.Syntax(
        job.script.rstrip(), "bash", theme="ansi_dark", background_color="default", word_wrap=True
    )
    return panel.Panel(code, title=f"$ sbatch {job.file}", title_align="left", border_style="dim")


def side_by_side(snapshot: demostate.Snapshot) -> columns.Columns:
    """Slurm's queue left, pods right."""
    return columns.Columns([_queue(snapshot), _pods(snapshot)], equal=False, expand=False)


def _table(title: str, *headings: str, min_width: int | None = None) -> table.Table:
    return table.Table(*headings, title=title, box=box.SIMPLE, title_justify="left", min_width=min_width)


def _queue(snapshot: demostate.Snapshot) -> table.Table:
    shown = _table("squeue", "job", "name", "state", "time", "where", min_width=44)
    for line in snapshot.queue:
        colour = _STATE_COLOURS.get(line.state, "")
        shown.add_row(line.shown_id, line.name, text.Text(line.state, colour), line.time, line.where)
    return shown


def _pods(snapshot: demostate.Snapshot) -> table.Table:
    title = "kubectl get pods -A -l app=slurm-job"
    shown = _table(title, "namespace", "pod", "status", "node", min_width=44)
    for pod in sorted(snapshot.pods, key=lambda pod: pod.metadata.name):
        shown.add_row(pod.metadata.namespace, pod.metadata.name, _status(pod), pod.spec.node_name)
    return shown


def _status(pod: types.Pod) -> str:
    if pod.metadata.deletion_timestamp:
        return "Terminating"
    ended = podview.container_state(pod).terminated
    return f"ended ({ended.exit_code})" if ended else pod.status.phase


def outputs(found: Mapping[str, str]) -> table.Table:
    shown = _table("Output files on the NAS", "file", "content")
    for name, content in sorted(found.items()):
        shown.add_row(name, text.Text(content.strip()))
    return shown


def log(job_id: int, content: str) -> panel.Panel:
    """A container's log, which also has the job's output."""
    title = f"kubectl logs of job {job_id}'s pod"
    return panel.Panel(text.Text(content.strip()), title=title, title_align="left", border_style="dim")


def records(found: tuple[scenario.Record, ...]) -> table.Table:
    shown = _table("sacct", "job", "name", "state", "exit code", "elapsed", "nodes")
    for record in found:
        state = record.state.partition(" ")[0]
        coloured = text.Text(state, _STATE_COLOURS.get(state, ""))
        shown.add_row(record.job, record.name, coloured, record.exit_code, record.elapsed, record.nodes)
    return shown
