"""Latency and throughput of the intake, from a dropped file to a job.

Measures the lab's own intake. Files are renamed into the folder, so they are complete at once and the time
begins there; it ends when the file is in processed/ with its job's number, shortly after sbatch's reply. Jobs
are held, since running them is measured elsewhere.
"""

from __future__ import annotations

import statistics
import time

from benchmarks import figures
from penstock_lab import testing

SAMPLES, FILES, BY_HAND = 60, 1000, 200
LATENCY_BUDGET, RATE_BUDGET = 1.0, 50.0
SCRIPT = "#!/bin/bash\n#SBATCH --partition=host --hold\ntrue\n"
MAKE = """
import pathlib, sys
for name in sys.stdin.read().split():
    pathlib.Path(sys.argv[1], name).write_text(sys.argv[2])
"""
MOVE = """
import pathlib, sys
for name in sys.stdin.read().split():
    pathlib.Path(sys.argv[1], name).rename(pathlib.Path(sys.argv[2], name))
"""


def measure(lab: testing.RunningLab) -> list[figures.Figure]:
    try:
        by_hand = sbatch_rate(lab)
        return [latency(lab, by_hand), drain(lab, by_hand)]
    finally:
        lab.run(("scancel", f"--user={lab.user}"))


def latency(lab: testing.RunningLab, by_hand: float) -> figures.Figure:
    """One file a second."""
    seconds = []
    for number in range(SAMPLES):
        before = processed(lab)
        began = drop(lab, [f"single-{number}.sh"])
        seconds.append(wait_for(lab, before + 1) - began)
        time.sleep(max(0.0, 1.0 - seconds[-1]))
    p99 = statistics.quantiles(seconds, n=100, method="inclusive")[98]
    middle = statistics.median(seconds)
    return figures.Figure(
        what="a dropped file becomes a job",
        measured=f"{middle * 1000:.0f} ms median, {p99 * 1000:.0f} ms p99 of {SAMPLES} at 1/s",
        baseline=f"{1000 / by_hand:.0f} ms for sbatch by hand",
        ratio=f"{middle * by_hand:.1f}",
        budget=f"p99 < {LATENCY_BUDGET * 1000:.0f} ms",
        kept=p99 < LATENCY_BUDGET,
    )


def drain(lab: testing.RunningLab, by_hand: float) -> figures.Figure:
    """Many at once."""
    before = processed(lab)
    began = drop(lab, [f"many-{number}.sh" for number in range(FILES)])
    rate = FILES / (wait_for(lab, before + FILES) - began)
    return figures.Figure(
        what=f"{FILES} files dropped at once",
        measured=f"{rate:.0f} jobs/s",
        baseline=f"{by_hand:.0f}/s by sbatch, one after the other",
        ratio=f"{rate / by_hand:.2f}",
        budget=f"≥ {RATE_BUDGET:.0f}/s",
        kept=rate >= RATE_BUDGET,
    )


def drop(lab: testing.RunningLab, names: list[str]) -> float:
    """Write the files elsewhere and rename them into submit/; returns the time of the first rename."""
    aside = lab.home / "aside"
    lab.run_as_user(("mkdir", "-p", str(aside)))
    words = "\n".join(names)
    lab.run_as_user(("python3", "-c", MAKE, str(aside), SCRIPT), stdin=words)
    began = time.monotonic()
    lab.run_as_user(("python3", "-c", MOVE, str(aside), str(lab.place.nas_submit)), stdin=words)
    return began


def processed(lab: testing.RunningLab) -> int:
    return sum(1 for _ in lab.place.nas_drop.glob("processed/*/*"))


def wait_for(lab: testing.RunningLab, count: int) -> float:
    """Wait until that many files are in processed/; returns the time."""
    deadline = time.monotonic() + 300
    while processed(lab) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"only {processed(lab)} of {count} files became jobs")
        time.sleep(0.01)
    return time.monotonic()


def sbatch_rate(lab: testing.RunningLab) -> float:
    """Submissions per second with plain sbatch."""
    loop = f"for n in $(seq {BY_HAND}); do sbatch --parsable -p host --hold --wrap true || exit 1; done"
    began = time.monotonic()
    lab.run_as_user(("sh", "-c", loop), timeout=300)
    return BY_HAND / (time.monotonic() - began)
