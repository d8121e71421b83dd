"""Conflicts between options, as sbatch reports or resolves them."""

from __future__ import annotations

import re

from penstock.sbatch import rules
from penstock.sbatch.diagnostics import Report
from penstock.sbatch.patterns import Pattern
from penstock.sbatch.precedence import Values
from penstock.sbatch.shape import Shape

_PLANE = Pattern(r"plane=([0-9]+)", re.IGNORECASE)
_COUNTED = {"gpus", "ntasks", "nodes", "nodelist"}
_MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")


def check(values: Values, report: Report) -> None:
    """Report conflicts; where sbatch allows it, the script overrides the environment instead."""
    _one_memory(values, report)
    if values.chosen("core-spec") and values.chosen("thread-spec"):
        message = "--core-spec and --thread-spec exclude each other"
        report.error(values.place("thread-spec"), "conflict", message)
    arbitrary = str(values.get("distribution", "")).lower().startswith("arbitrary")
    if arbitrary and "nodelist" not in values and "nodefile" not in values:
        message, hint = "--distribution=arbitrary needs a list of nodes", "add --nodelist or --nodefile"
        report.error(values.place("distribution"), "conflict", message, hint)
    shortest, limit = values.get("time-min"), values.get("time")
    if shortest is not None and limit is not None and shortest > limit:
        message = "--time-min is longer than --time"
        report.error(values.place("time-min"), "conflict", message, "make it shorter")
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
        option = "gpus-per-task" if "gpus-per-task" in values else "tres-per-task"
        message = f"--{option} without a number of tasks"
        report.error(values.place(option), "conflict", message, "add --ntasks or --nodes")
    gpus = any(gres.name == "gpu" for gres in values.get("gres", ()))
    if gpus and "gpus-per-node" in values and rules.holds("gres-or-gpus-per-node", release):
        message = "--gres=gpu and --gpus-per-node exclude each other"
        report.error(values.place("gpus-per-node"), "conflict", message, "keep one of them")


def _one_memory(values: Values, report: Report) -> None:
    chosen = [name for name in _MEMORY if values.chosen(name)]
    present = [name for name in _MEMORY if name in values]
    if len(chosen) > 1 or (not chosen and len(present) > 1):
        last = max(chosen or present, key=lambda name: values.place(name).line)
        names = " and ".join(f"--{name}" for name in chosen or present)
        report.error(values.place(last), "conflict", f"{names} exclude each other", "keep one of them")
    elif chosen:
        values.drop(*(name for name in present if name not in chosen))


def check_shape(values: Values, shape: Shape, report: Report) -> None:
    """Report conflicts that depend on the number of nodes and tasks."""
    match = _PLANE.match(str(values.get("distribution", "")))
    by_node = "ntasks-per-node" in values and not rules.holds("plane-needs-tasks", values.release)
    tasks = shape.tasks if shape.tasks_firm and ("ntasks" in values or by_node) else 1
    if match and (tasks or 1) <= int(match.group(1)[:9]) * (shape.nodes.minimum - 1):
        message = f"too few tasks for blocks of {match.group(1)} on {shape.nodes.minimum} nodes"
        report.error(
            values.place("distribution"), "conflict", message, "request more tasks or smaller blocks"
        )
