"""Options that cannot stand together, and what sbatch makes of those that can."""

from __future__ import annotations

import re

from penstock.sbatch import rules
from penstock.sbatch.diagnostics import Place, Report
from penstock.sbatch.patterns import Pattern
from penstock.sbatch.precedence import Values
from penstock.sbatch.shape import Shape

_PLANE = Pattern(r"plane=([0-9]+)", re.IGNORECASE)
_COUNTED = {"gpus", "ntasks", "nodes", "nodelist"}
_MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")


def check(values: Values, report: Report) -> None:
    """Report conflicts; what the environment asks for gives way to the script where sbatch lets it."""
    _one_memory(values, report)
    if values.chosen("core-spec") and values.chosen("thread-spec"):
        report.error(
            values.place("thread-spec"), "conflict", "--core-spec and --thread-spec exclude each other"
        )
    arbitrary = str(values.get("distribution", "")).lower().startswith("arbitrary")
    if arbitrary and "nodelist" not in values and "nodefile" not in values:
        hint = "give the nodes, in order, with --nodelist or --nodefile"
        report.error(
            values.place("distribution"), "conflict", "--distribution=arbitrary needs a list of nodes", hint
        )
    _time_min(values, report)
    _of_later_releases(values, report)


def _of_later_releases(values: Values, report: Report) -> None:
    release = values.release
    per_core, threads = values.get("ntasks-per-core", 0), values.get("threads-per-core", 0)
    if threads and per_core > threads and rules.holds("tasks-per-core-within-threads", release):
        message = f"--ntasks-per-core={per_core} is above --threads-per-core={threads}"
        report.error(values.place("ntasks-per-core"), "conflict", message, "make it smaller")
    per_task = (*values.get("gpus-per-task", ()), *values.get("tres-per-task", ()))
    uncounted = any(gres.count for gres in per_task if gres.name != "cpu") and not _COUNTED & values.names()
    if uncounted and rules.holds("gpus-per-task-needs-tasks", release):
        message = "GPUs or other resources a task, and nothing says how many tasks there are"
        report.error(_place_of_per_task(values), "conflict", message, "add --ntasks or --nodes")
    gpus = any(gres.name == "gpu" for gres in values.get("gres", ()))
    if gpus and "gpus-per-node" in values and rules.holds("gres-or-gpus-per-node", release):
        message = "--gres=gpu and --gpus-per-node exclude each other"
        report.error(values.place("gpus-per-node"), "conflict", message, "keep one of them")


def _place_of_per_task(values: Values) -> Place:
    return values.place("gpus-per-task" if "gpus-per-task" in values else "tres-per-task")


def _one_memory(values: Values, report: Report) -> None:
    chosen = [name for name in _MEMORY if values.chosen(name)]
    present = [name for name in _MEMORY if name in values]
    if len(chosen) > 1 or (not chosen and len(present) > 1):
        last = max(chosen or present, key=lambda name: values.place(name).line)
        names = " and ".join(f"--{name}" for name in chosen or present)
        report.error(values.place(last), "conflict", f"{names} exclude each other", "keep one of them")
    elif chosen:
        values.drop(*(name for name in present if name not in chosen))


def _time_min(values: Values, report: Report) -> None:
    shortest, limit = values.get("time-min"), values.get("time")
    if shortest is not None and limit is not None and shortest > limit:
        report.error(
            values.place("time-min"), "conflict", "--time-min is longer than --time", "make it shorter"
        )


def check_shape(values: Values, shape: Shape, report: Report) -> None:
    """Conflicts that show only once nodes and tasks are counted."""
    match = _PLANE.match(str(values.get("distribution", "")))
    by_node = "ntasks-per-node" in values and not rules.holds("plane-needs-tasks", values.release)
    tasks = shape.tasks if shape.tasks_firm and ("ntasks" in values or by_node) else 1
    if match and (tasks or 1) <= int(match.group(1)[:9]) * (shape.nodes.minimum - 1):
        message = f"too few tasks for blocks of {match.group(1)} on {shape.nodes.minimum} nodes"
        report.error(
            values.place("distribution"), "conflict", message, "ask for more tasks or smaller blocks"
        )
