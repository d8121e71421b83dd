"""Options that cannot stand together, and what sbatch makes of those that can."""

from __future__ import annotations

import re

from penstock.sbatch.diagnostics import Report
from penstock.sbatch.patterns import Pattern
from penstock.sbatch.settings import Values
from penstock.sbatch.shape import Shape

_PLANE = Pattern(r"plane=([0-9]+)", re.IGNORECASE)
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
    tasks = shape.tasks if shape.tasks_firm else 1
    if match and (tasks or 1) <= int(match.group(1)[:9]) * (shape.nodes.minimum - 1):
        message = f"too few tasks for blocks of {match.group(1)} on {shape.nodes.minimum} nodes"
        report.error(
            values.place("distribution"), "conflict", message, "ask for more tasks or smaller blocks"
        )
