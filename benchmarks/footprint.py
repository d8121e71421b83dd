"""Memory of a running job on the head node in addition to Slurm's, and CPU of the hooks."""

from __future__ import annotations

import os
import statistics
import time

from benchmarks import figures, parts, processes
from penstock_lab import testing

RUNNING = 200
MEGABYTES, HOOK_MILLISECONDS = 4.0, 15.0
UP_SECONDS = 240


def measure(lab: testing.RunningLab) -> list[figures.Figure]:
    return [*_hooks(lab), _memory(lab)]


def _memory(lab: testing.RunningLab) -> figures.Figure:
    daemon = parts.pids(lab)["penstockd"]
    before = processes.pss_megabytes(daemon)
    script = "#!/bin/sh\nsleep 600\n"
    job_id = lab.sbatch(script, f"--array=1-{RUNNING}", "--mem=100M", "--output=/dev/null")
    launcher = f"{lab.place.libexec}/penstock-launch"
    testing.until(lambda: parts_running(lab, job_id) == RUNNING, seconds=UP_SECONDS)
    testing.until(lambda: len(processes.with_argument(launcher)) == RUNNING, seconds=60)
    time.sleep(2)
    launchers = [processes.pss_megabytes(pid) for pid in processes.with_argument(launcher)]
    growth = (processes.pss_megabytes(daemon) - before) / RUNNING
    steps = [processes.pss_megabytes(pid) for pid in _slurmstepds(lab)]
    lab.run(("scancel", job_id))
    lab.run(("scontrol", "wait_job", job_id), check=False, timeout=5)
    testing.until(lambda: parts_running(lab, job_id) == 0, seconds=UP_SECONDS)
    ours = statistics.mean(launchers) + growth
    theirs = statistics.mean(steps)
    return figures.Figure(
        what=f"memory of a running job ({RUNNING} running)",
        measured=f"{ours:.1f} MB PSS (launcher, penstockd's growth)",
        baseline=f"its slurmstepd {theirs:.1f} MB",
        ratio=f"{ours / theirs:.1f}",
        budget=f"≤ {MEGABYTES:g} MB",
        kept=ours <= MEGABYTES,
    )


def parts_running(lab: testing.RunningLab, job_id: str) -> int:
    argv = ("squeue", "--noheader", "--array", "--states=running,completing", f"--jobs={job_id}")
    return len(lab.run(argv, check=False).stdout.splitlines())


def _slurmstepds(lab: testing.RunningLab) -> list[int]:
    """slurmstepds of this lab: the parents of its launchers."""
    launchers = processes.with_argument(f"{lab.place.libexec}/penstock-launch")
    return [processes.parent(pid) for pid in launchers]


def _hooks(lab: testing.RunningLab) -> list[figures.Figure]:
    bare = processes.cpu_milliseconds_of(["/usr/bin/python3", "-IS", "-c", "pass"], dict(os.environ))
    found = []
    for name, environment in (
        ("for a bridged job", {"SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_ID": "1"}),
        ("for another", {"SLURM_JOB_PARTITION": "host"}),
    ):
        cost = processes.cpu_milliseconds_of([f"{lab.place.libexec}/penstock-epilog"], environment)
        found.append(
            figures.Figure(
                what=f"hook {name}, CPU",
                measured=f"{cost:.1f} ms",
                baseline=f"python3 -IS -c pass {bare:.1f} ms",
                ratio=f"{cost / bare:.2f}",
                budget=f"≤ {HOOK_MILLISECONDS:g} ms",
                kept=cost <= HOOK_MILLISECONDS,
            )
        )
    return found
