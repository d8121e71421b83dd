"""The components of a lab: their processes, settings and jobs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from penstock_lab import testing


def pids(lab: testing.RunningLab) -> dict[str, int]:
    status = json.loads(lab.penstock("lab", "status", "--format", "json").stdout)
    return {part["name"]: int(part["pid"]) for part in status["components"]}


def pids_by_part(lab: testing.RunningLab) -> dict[str, list[int]]:
    """Processes by component, with children such as slurmctld's script runner; slurmds are one component."""
    found: dict[str, list[int]] = {}
    for name, pid in pids(lab).items():
        part = "slurmd" if re.fullmatch(r"slurmd\W\w+", name) else name
        found.setdefault(part, []).extend([pid, *_children(pid)])
    return found


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]


def states(lab: testing.RunningLab, job_id: str) -> list[str]:
    """States of a job or of all tasks of an array, from the accounting."""
    argv = ("sacct", "--noheader", "--allocations", f"--jobs={job_id}", "--format=State")
    return lab.run(argv).stdout.split()


def collected(lab: testing.RunningLab) -> int:
    """Number of jobs with results."""
    return len(list(lab.place.nas_results.glob("*/job_summary.json")))


def default_image(lab: testing.RunningLab) -> str:
    return str(json.loads(lab.place.penstockd_conf.read_text())["pods"]["default_image"])
