"""What the tests of outages share: a lab whose API can be made to fail, and jobs that live through it."""

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
    """A job that runs until it is told to end, and then ends with code 5."""

    lab: Lab
    job_id: str
    folder: Path
    uids: tuple[str, ...]

    def is_untouched(self) -> bool:
        """Its pods are the very same and nobody has asked for their end."""
        now = semantics.pods(self.lab, self.job_id)
        untouched = not any("deletionTimestamp" in pod["metadata"] for pod in now)
        return untouched and uids(now) == self.uids

    def end(self) -> None:
        (self.folder / "stop").touch()

    def check_true_end(self, *, timeout: float = 180) -> None:
        """Slurm's record and the output are those of the one container."""
        found = semantics.record(self.lab, self.job_id, timeout=timeout)
        assert found == TRUE_END, f"{found}: {semantics.field(self.lab, self.job_id, 'Comment')}"
        output = (self.folder / "o").read_text()
        assert output == "begin\nend\n", output
        assert self.lab.job(self.job_id)["Restarts"] == "0"


def watched(lab: Lab, job_ids: list[str], folder: Path) -> list[LongJob]:
    """Many jobs that run already, by one look."""
    by_job = collections.defaultdict(list)
    for pod in all_pods(lab):
        by_job[pod["metadata"]["labels"]["penstock.dev/job-id"]].append(pod)
    return [LongJob(lab, job_id, folder, uids(by_job[job_id])) for job_id in job_ids]


def all_untouched(jobs: list[LongJob]) -> bool:
    """None of them has lost a pod, by one look."""
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
    """Submit one and see it run."""
    folder = semantics.folder(lab, "storm")
    job_id = lab.sbatch(LOOP, "--output=o", *options, cwd=folder)
    semantics.wait_for_text(folder / "o", "begin")
    return LongJob(lab, job_id, folder, uids(semantics.pods(lab, job_id)))


def stays_so(holds: Callable[[], bool], *, seconds: float) -> None:
    """It is true now and all the time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert holds()
        time.sleep(0.3)


def kill(lab: Lab, name: str) -> None:
    """SIGKILL to a component of the lab; slurmctld is let go in peace.

    It writes its state every few seconds: killed, it forgets what is younger, and with it that jobs run.
    """
    record = supervision.read_record(lab.place, name)
    assert record is not None
    processes.send(record.identity, signal.SIGTERM if name == "slurmctld" else signal.SIGKILL)
    assert processes.wait_gone([record.identity], seconds=60) == []


def restart(lab: Lab) -> None:
    """Start what does not run, and leave all others alone."""
    lab.penstock("lab", "up", "--dir", str(lab.place.directory))


@contextmanager
def away(lab: Lab, name: str) -> Iterator[None]:
    """The component is killed, and back afterwards."""
    kill(lab, name)
    try:
        yield
    finally:
        restart(lab)


def foreign_pod(name: str, node: str, *, gpus: int) -> semantics.Json:
    """Somebody else's pod that takes GPUs of a node."""
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
    """A job that was sent back or refused is tried now: how long Slurm lets it wait is not what is tested."""
    lab.wait_for(job_id, "PENDING", "COMPLETED")
    lab.run(("scontrol", "update", f"JobId={job_id}", "StartTime=now"), check=False)


def drained(lab: Lab) -> list[str]:
    """Nodes that Slurm keeps jobs from, with the reason."""
    lines = lab.run(("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %T %E")).stdout.splitlines()
    return [line for line in lines if "drain" in line or "down" in line]
