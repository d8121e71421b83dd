"""A part of the cluster dies while a job runs and comes back: same pod, whole output, true end."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from penstock_lab import spec, testing

TICKS = 30
SCRIPT = f"#!/bin/bash\nfor i in {{1..{TICKS}}}; do echo tick $i; sleep 0.3; done; exit 5\n"


def pid_of(lab: testing.RunningLab, name: str) -> int:
    """The process of one component."""
    status = json.loads(lab.penstock("lab", "status", "--format", "json", check=False).stdout)
    return next(int(part["pid"]) for part in status["components"] if part["name"] == name)


def wait_for_line(file: Path, text: str) -> None:
    deadline = time.monotonic() + 30
    while not (file.exists() and text in file.read_text().splitlines()):
        assert time.monotonic() < deadline, f"{file} does not say {text!r}"
        time.sleep(0.05)


def pods_of(lab: testing.RunningLab, job_id: str) -> list[str]:
    """uids of the job's pods."""
    selector = f"penstock.dev/job-id={job_id}"
    argv = ("kubectl", "get", "pods", "-A", "-l", selector, "-o", "jsonpath={.items[*].metadata.uid}")
    return lab.run(argv).stdout.split()


@pytest.mark.parametrize("part", ["kubelet", "containerd", "apiserver", "etcd"])
def test_job_survives_the_death_of_a_component(lab: testing.RunningLab, part: str) -> None:
    """SIGKILL, a pause, `penstock lab up`: Slurm's record is the container's own."""
    if testing.kubernetes() != spec.REAL:
        pytest.skip("the dev cluster is one process, and its pods go with it")
    output = lab.home / f"outlives-{part}.out"
    job_id = lab.sbatch(SCRIPT, "--gres=gpu:1", f"--output={output}")
    wait_for_line(output, "tick 3")
    before = pods_of(lab, job_id)
    name = f"{part}-{lab.job(job_id)['NodeList']}" if part in ("kubelet", "containerd") else part
    os.kill(pid_of(lab, name), signal.SIGKILL)
    time.sleep(1)
    testing.lab_command(lab.place, "up")
    assert lab.accounted(job_id, timeout=60) == ["FAILED", "5:0"]
    assert output.read_text().splitlines() == [f"tick {number}" for number in range(1, TICKS + 1)]
    job = lab.wait_for(job_id, "FAILED")
    assert job["Restarts"] == "0"
    assert len(before) == 1
    assert pods_of(lab, job_id) == []
    after = lab.sbatch("#!/bin/sh\nexit 0\n", "--gres=gpu:1", f"--output={lab.home}/after.out")
    assert lab.accounted(after, timeout=60) == ["COMPLETED", "0:0"]
    assert "drain" not in lab.run(("sinfo", "-h", "-o", "%T")).stdout
