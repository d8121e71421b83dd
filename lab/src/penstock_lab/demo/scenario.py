"""The demo's jobs with their expected outcomes, and pure checks of what was observed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

HELLO = """\
#!/bin/bash
#SBATCH --job-name=hello
#SBATCH --ntasks=1 --mem=500M --gres=gpu:1
#SBATCH --output=%x-%j.out
echo "Hello from pod $(hostname), as $(id -un), for Slurm job $SLURM_JOB_ID on $SLURM_JOB_NODELIST"
sleep 3
"""
ARRAY = """\
#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --array=1-3
#SBATCH --cpus-per-task=2 --mem=1G
#SBATCH --output=%x-%A_%a.out
echo "task $SLURM_ARRAY_TASK_ID of array $SLURM_ARRAY_JOB_ID with $SLURM_CPUS_PER_TASK CPUs"
sleep $((SLURM_ARRAY_TASK_ID + 1))
"""
FAILS = """\
#!/bin/bash
#SBATCH --job-name=fails
#SBATCH --output=%x-%j.out
echo "this one gives up"
sleep 2
exit 7
"""
LONG = """\
#!/bin/bash
#SBATCH --job-name=too-long
#SBATCH --time=10:00
#SBATCH --output=%x-%j.out
trap 'echo "told to stop, and did"; exit 0' TERM
echo "counting sheep until somebody stops me"
sleep 600 &
wait
"""
OTHER_IMAGE = """\
#!/bin/bash
#SBATCH --job-name=tools
#SBATCH --output=%x-%j.out
#K8S_IMAGE=nas-hub.local:5407/lab/tools:1
echo "this container's image is $(cat /etc/image)"
"""
HUNGRY = """\
#!/usr/bin/python3
#SBATCH --job-name=hungry
#SBATCH --mem=100M
#SBATCH --output=%x-%j.out
print("eating memory", flush=True)
plate = bytearray(b"x") * 400_000_000
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoJob:
    """A script and its expected record."""

    file: str
    script: str
    tasks: int = 1
    state: str
    exit_code: str
    says: str
    """Text that its output must contain."""
    cancelled: bool = False
    logged: bool = False
    """Whether its container's log is also shown."""


JOBS = (
    DemoJob(
        file="hello.sh",
        script=HELLO,
        state="COMPLETED",
        exit_code="0:0",
        says="Hello from pod slurm-",
        logged=True,
    ),
    DemoJob(file="sweep.sh", script=ARRAY, tasks=3, state="COMPLETED", exit_code="0:0", says="of array"),
    DemoJob(file="fails.sh", script=FAILS, state="FAILED", exit_code="7:0", says="this one gives up"),
    DemoJob(
        file="too-long.sh",
        script=LONG,
        state="CANCELLED",
        exit_code="0:0",
        says="told to stop, and did",
        cancelled=True,
    ),
)
IN_CONTAINERS = (
    DemoJob(
        file="tools.sh", script=OTHER_IMAGE, state="COMPLETED", exit_code="0:0", says="image is lab/tools"
    ),
    DemoJob(file="hungry.py", script=HUNGRY, state="FAILED", exit_code="0:9", says="penstock: OOMKilled"),
)
"""Jobs that need real containers: their own images, and limits enforced by the kernel."""


@dataclasses.dataclass(frozen=True)
class Record:
    """A line of sacct."""

    job: str
    name: str
    state: str
    exit_code: str
    elapsed: str
    nodes: str


def wrong_log(job: DemoJob, log: str) -> list[str]:
    """The problem if the container's log lacks the expected output."""
    return [] if job.says in log else [f"{job.file}: its container's log does not say {job.says!r}"]


def wrong_records(submitted: Mapping[str, DemoJob], records: tuple[Record, ...]) -> list[str]:
    """Differences between sacct and the expected records."""
    found = []
    for job_id, job in submitted.items():
        own = [record for record in records if record.job.partition("_")[0] == job_id]
        if len(own) != job.tasks:
            found.append(f"{job.file}: {len(own)} records in sacct, not {job.tasks}")
        for record in own:
            got = (record.state.partition(" ")[0], record.exit_code)
            if got != (job.state, job.exit_code):
                found.append(f"{job.file}: sacct says {' '.join(got)}, not {job.state} {job.exit_code}")
    return found


def wrong_outputs(submitted: Mapping[str, DemoJob], outputs: Mapping[str, str]) -> list[str]:
    """Jobs whose output files are missing or lack the expected text; `outputs` is by file name."""
    found = []
    for job_id, job in submitted.items():
        stem = job.file.rpartition(".")[0]
        own = [text for name, text in outputs.items() if name.startswith(f"{stem}-{job_id}")]
        good = [text for text in own if job.says in text]
        if len(good) != job.tasks:
            found.append(f"{job.file}: {len(good)} of {job.tasks} output files say {job.says!r}")
    return found
