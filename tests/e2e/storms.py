"""Shared by the tests of outages: a lab with API faults, and jobs that survive them."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e import semantics

from penstock_lab import processes, supervision
from penstock_lab.faultproxy import faultrules

Lab = semantics.Lab
Rule = faultrules.Rule
WHOLE = "PENSTOCK_TEST_STORM"
LONG = pytest.mark.skipif(WHOLE not in os.environ, reason=f"long: `make storm` runs it ({WHOLE}=1)")
LOOP = "#!/bin/sh\necho begin\nwhile [ ! -e stop ]; do sleep 0.1; done\necho end\nexit 5\n"
TRUE_END = semantics.Record("FAILED", "5:0")


@dataclasses.dataclass(frozen=True)
class LongJob:
    """A job that runs until it is released, and then exits with code 5."""

    lab: Lab
    job_id: str
    folder: Path
    uids: tuple[str, ...]

    def is_untouched(self) -> bool:
        """Its pods are the same and not Terminating."""
        now = semantics.pods(self.lab, self.job_id)
        untouched = not any("deletionTimestamp" in pod["metadata"] for pod in now)
        return untouched and uids(now) == self.uids

    def end(self) -> None:
        (self.folder / "stop").touch()

    def check_true_end(self, *, timeout: float = 180) -> None:
        """Slurm's record and the output are the container's."""
        found = semantics.record(self.lab, self.job_id, timeout=timeout)
        assert found == TRUE_END, f"{found}: {semantics.field(self.lab, self.job_id, 'Comment')}"
        output = (self.folder / "o").read_text()
        assert output == "begin\nend\n", output
        assert self.lab.job(self.job_id)["Restarts"] == "0"


def watched(lab: Lab, job_ids: list[str], folder: Path) -> list[LongJob]:
    """Running jobs, checked in one query."""
    by_job = collections.defaultdict(list)
    for pod in all_pods(lab):
        by_job[pod["metadata"]["labels"]["penstock.dev/job-id"]].append(pod)
    return [LongJob(lab, job_id, folder, uids(by_job[job_id])) for job_id in job_ids]


def all_untouched(jobs: list[LongJob]) -> bool:
    """None of them has lost a pod, checked in one query."""
    pods = all_pods(jobs[0].lab)
    living = {pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
    return all(job.uids and living.issuperset(job.uids) for job in jobs)


def all_pods(lab: Lab) -> list[semantics.Json]:
    """Every pod of a job."""
    argv = ("kubectl", "get", "pods", "-A", "-l", "app=slurm-job", "-o", "json")
    items: list[semantics.Json] = json.loads(lab.run(argv).stdout)["items"]
    return items


def uids(pods: list[semantics.Json]) -> tuple[str, ...]:
    return tuple(sorted(pod["metadata"]["uid"] for pod in pods))


def start(lab: Lab, *options: str) -> LongJob:
    """Submit a job and wait until it runs."""
    folder = semantics.folder(lab, "storm")
    job_id = lab.sbatch(LOOP, "--output=o", *options, cwd=folder)
    semantics.wait_for_text(folder / "o", "begin")
    return LongJob(lab, job_id, folder, uids(semantics.pods(lab, job_id)))


def stays_so(holds: Callable[[], bool], *, seconds: float) -> None:
    """The condition holds for the whole time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert holds()
        time.sleep(0.3)


def kill(lab: Lab, name: str) -> None:
    """SIGKILL a component of the lab; slurmctld gets SIGTERM.

    It saves its state every few seconds: killed, it loses newer changes, such as the start of jobs.
    """
    record = supervision.read_record(lab.place, name)
    assert record is not None
    processes.send(record.identity, signal.SIGTERM if name == "slurmctld" else signal.SIGKILL)
    assert processes.wait_gone([record.identity], seconds=60) == []


def restart(lab: Lab) -> None:
    """Start the components that do not run."""
    lab.penstock("lab", "up", "--dir", str(lab.place.directory))


@contextmanager
def away(lab: Lab, name: str) -> Iterator[None]:
    """Kill the component; it is restarted afterwards."""
    kill(lab, name)
    try:
        yield
    finally:
        restart(lab)


def foreign_pod(name: str, node: str, *, gpus: int) -> semantics.Json:
    """A foreign pod with GPUs of a node."""
    amount = {"nvidia.com/gpu": str(gpus)}
    container = {
        "name": "c",
        "image": "lab/host-userland:1",
        "command": ["/bin/sleep", "600"],
        "resources": {"requests": amount, "limits": amount},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


def hurry(lab: Lab, job_id: str) -> None:
    """Start a requeued job now: Slurm's delay is not under test."""
    lab.wait_for(job_id, "PENDING", "COMPLETED")
    lab.run(("scontrol", "update", f"JobId={job_id}", "StartTime=now"), check=False)


def drained(lab: Lab) -> list[str]:
    """Drained or down nodes with their reasons."""
    lines = lab.run(("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %T %E")).stdout.splitlines()
    return [line for line in lines if "drain" in line or "down" in line]
