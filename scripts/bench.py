"""Measures the bridge on a lab of its own, each figure against a baseline in the same run.

throughput   an array of no-op jobs as pods, against the same array in the unbridged partition (plain Slurm)
start        from Slurm's start of a job to its first output, against the same for a plain Slurm job
hooks        CPU of PrologSlurmctld's program, against `python3 -IS -c pass`
memory       of penstockd and of a waiting launcher
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import time
from pathlib import Path

from penstock.lab import testing

JOBS = 100
SAMPLES = 7


def array_seconds(lab: testing.RunningLab, partition: str) -> float:
    """From submission until the last of JOBS no-op jobs has left the queue."""
    began = time.monotonic()
    job_id = lab.sbatch(
        "#!/bin/sh\ntrue\n",
        f"--array=1-{JOBS}",
        f"--partition={partition}",
        "--mem=100M",
        "--output=/dev/null",
    )
    while lab.run(("squeue", "--noheader", f"--jobs={job_id}"), check=False).stdout.strip():
        time.sleep(0.1)
    elapsed = time.monotonic() - began
    check_completed(lab, job_id)
    return elapsed


def check_completed(lab: testing.RunningLab, job_id: str) -> None:
    """A figure counts only when every job did; the accounting may lag a little."""
    for _ in range(100):
        argv = ("sacct", "-n", "-X", f"--jobs={job_id}", "--format=State")
        states = lab.run(argv).stdout.split()
        if states == ["COMPLETED"] * JOBS:
            return
        time.sleep(0.1)
    raise AssertionError(f"not all {JOBS} jobs completed: {len(states)} records, {sorted(set(states))}")


def start_seconds(lab: testing.RunningLab, partition: str) -> float:
    """From submission to the first line of output; the median of several."""
    found = []
    for number in range(SAMPLES):
        output = lab.home / f"start-{partition}-{number}.out"
        began = time.time()
        job_id = lab.sbatch("#!/bin/sh\ndate +%s.%N\n", f"--partition={partition}", f"--output={output}")
        lab.accounted(job_id)
        found.append(float(output.read_text().split()[0]) - began)
    return statistics.median(found)


def cpu_milliseconds(argv: list[str], environment: dict[str, str]) -> float:
    """User and system time of one run; the median of several."""
    found = []
    for _ in range(2 * SAMPLES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(argv, env=environment, check=False, timeout=30)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)
    return statistics.median(found)


def pss_megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no Pss for process {pid}")


def launcher_pids(lab: testing.RunningLab) -> list[int]:
    marker = f"{lab.place.libexec}/penstock-launch".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if len(words) > 2 and words[2] == marker:
            found.append(int(entry.parent.name))
    return found


def memory(lab: testing.RunningLab) -> tuple[float, float]:
    """PSS of penstockd and of one launcher while ten jobs wait."""
    job_id = lab.sbatch("#!/bin/sh\nsleep 60\n", "--array=1-10", "--mem=100M", "--output=/dev/null")
    while len(launcher_pids(lab)) < 10:
        time.sleep(0.1)
    time.sleep(1)
    status = json.loads(lab.penstock("lab", "status", "--format", "json").stdout)
    daemon = next(int(part["pid"]) for part in status["components"] if part["name"] == "penstockd")
    launchers = [pss_megabytes(pid) for pid in launcher_pids(lab)]
    found = pss_megabytes(daemon), statistics.median(launchers)
    lab.run(("scancel", job_id))
    return found


def main() -> None:
    with testing.temporary_lab() as lab:
        array_seconds(lab, "host")
        plain, bridged = array_seconds(lab, "host"), array_seconds(lab, "gpu")
        print(f"throughput   {JOBS} no-op jobs: {bridged:.1f} s as pods, {plain:.1f} s in plain Slurm")
        print(f"             {plain / bridged:.2f} × plain Slurm's throughput")
        plain, bridged = start_seconds(lab, "host"), start_seconds(lab, "gpu")
        print(
            f"start        {bridged * 1000:.0f} ms as a pod, {plain * 1000:.0f} ms in plain Slurm: ", end=""
        )
        print(f"{(bridged - plain) * 1000:+.0f} ms")
        ours = cpu_milliseconds(
            [f"{lab.place.libexec}/penstock-epilog"], {"SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_ID": "1"}
        )
        other = cpu_milliseconds([f"{lab.place.libexec}/penstock-epilog"], {"SLURM_JOB_PARTITION": "host"})
        bare = cpu_milliseconds(["/usr/bin/python3", "-IS", "-c", "pass"], dict(os.environ))
        print(f"hooks        {ours:.1f} ms CPU for a bridged job, {other:.1f} ms for another, ", end="")
        print(f"{bare:.1f} ms for Python alone")
        daemon, launcher = memory(lab)
        print(f"memory       penstockd {daemon:.0f} MB, a waiting launcher {launcher:.1f} MB (PSS)")


if __name__ == "__main__":
    main()
