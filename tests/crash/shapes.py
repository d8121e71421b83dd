"""The jobs of the crash matrix: what is submitted, what happens to it on the way, and how it has to end.

Every script leaves a line in `runs` when it begins, so that a second run of the same attempt is seen, and its
output tells whether anything of it is missing or doubled.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

from penstock import wellknown
from penstock.lab import spec, testing
from penstock.model import jobs
from penstock.render import pods as rendering
from tests.e2e import labs, semantics

Lab = testing.RunningLab
GPU = wellknown.GPU_RESOURCE
PLAIN = "echo begin\nsleep 1\necho end\nexit 3\n"
LONG = "echo begin\nsleep 300\n"
ONCE_LONG = "echo begin\n[ ${SLURM_RESTART_COUNT:-0} -gt 0 ] || sleep 300\necho end\nexit 3\n"
WAITING = "echo begin\nwhile [ ! -e go ]; do sleep 0.2; done\necho end\nexit 3\n"
TRAPPING = "trap 'echo got; exit 5' USR1\necho begin\nwhile :; do sleep 0.1; done\n"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A submitted job: where it writes, and what it has left."""

    job_id: str
    folder: Path
    output: Path

    @property
    def text(self) -> str:
        return self.output.read_text() if self.output.exists() else ""

    @property
    def runs(self) -> int:
        """How often the script has begun."""
        file = self.folder / "runs"
        return len(file.read_text().splitlines()) if file.exists() else 0


Act = Callable[[Lab, Job], None]


def nothing(lab: Lab, job: Job) -> None:
    """The job is left alone."""


def _begun(job: Job) -> None:
    semantics.wait_until(lambda: "begin\n" in job.text, "the script has begun")


def cancel(lab: Lab, job: Job) -> None:
    _begun(job)
    lab.run(("scancel", job.job_id))


def signal(lab: Lab, job: Job) -> None:
    _begun(job)
    lab.run(("scancel", "--batch", "--signal=USR1", job.job_id))


def requeue(lab: Lab, job: Job) -> None:
    _begun(job)
    lab.run(("scontrol", "requeue", job.job_id))


def delete(lab: Lab, job: Job) -> None:
    """Somebody deletes the pod."""
    _begun(job)
    for pod in semantics.pods(lab, job.job_id):
        meta = pod["metadata"]
        argv = ("kubectl", "delete", "pod", "-n", meta["namespace"], meta["name"], "--wait=false")
        lab.run((*argv, "--grace-period=1"))


def evict(lab: Lab, job: Job) -> None:
    """The cluster wants the node."""
    _begun(job)
    (pod,) = semantics.pods(lab, job.job_id)
    meta = {name: pod["metadata"][name] for name in ("name", "namespace")}
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": meta,
        "deleteOptions": {"gracePeriodSeconds": 1},
    }
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
    lab.run(("kubectl", "create", "--raw", path, "-f", "-"), stdin=json.dumps(body))


def crash_twice(lab: Lab, job: Job) -> None:
    """penstockd is killed for the first time, and comes back to what it has to recover."""
    _begun(job)
    labs.kill(lab.place, "penstockd")
    testing.lab_command(lab.place, "up", check=False)


def go(lab: Lab, job: Job) -> None:
    """What the script waits for."""
    (job.folder / "go").touch()


def _foreign(name: str, labels: dict[str, str], spec: dict[str, object]) -> str:
    container = {"name": "c", "image": "busybox", "command": ["sleep", "600"]}
    if "nodeName" in spec:
        container["resources"] = {"requests": {GPU: "3"}, "limits": {GPU: "3"}}  # type: ignore[assignment]  # JSON
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {**spec, "terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    return json.dumps(pod)


def occupy(lab: Lab) -> None:
    """Somebody else has three of the node's four GPUs."""
    lab.run(("kubectl", "apply", "-f", "-"), stdin=_foreign("notebook", {}, {"nodeName": "n4"}))


def vacate(lab: Lab, job: Job) -> None:
    lab.run(("kubectl", "delete", "pod", "notebook", "--wait=true"))


def leave_an_orphan(lab: Lab) -> None:
    """A pod of a job that never was, on no node."""
    identity = jobs.JobIdentity(job_id=999999, restart=0, uid=0)
    labels = rendering.labels_of(identity, spec.load(lab.place).name)
    manifest = _foreign("orphan", labels, {"schedulerName": wellknown.SCHEDULER_NAME})
    lab.run(("kubectl", "apply", "-f", "-"), stdin=manifest)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """A kind of job."""

    script: str = PLAIN
    options: tuple[str, ...] = ()
    before: Callable[[Lab], None] = lambda lab: None
    """What is there before it is submitted."""
    act: Act = nothing
    after: Act = nothing
    """What happens when the lab is whole again."""
    streamed: bool = False
    """Whether its output goes where pods cannot write."""
    record: tuple[str, str] = ("FAILED", "3:0")
    """How it ends when nobody is killed; no exit code: any."""
    texts: tuple[str, ...] = ("begin\nend\n",)
    """What it may have written then."""
    reason: str = ""
    """What Slurm's comment says then."""

    def submit(self, lab: Lab, folder: Path, outside: Path) -> Job:
        """Hand it to sbatch."""
        place = outside if self.streamed else folder
        output = place / f"{folder.name}.out"
        text = f"#!/bin/sh\necho run >>{folder}/runs\n{self.script}"
        job_id = lab.sbatch(text, f"--output={output}", *self.options, cwd=folder)
        return Job(job_id=job_id, folder=folder, output=output)


SHAPES = {
    "plain": Shape(),
    "gang": Shape(options=("--nodes=2",)),
    "streamed": Shape(streamed=True),
    "cancelled": Shape(script=LONG, act=cancel, record=("CANCELLED", ""), texts=("begin\n",)),
    "signalled": Shape(script=TRAPPING, act=signal, record=("FAILED", "5:0"), texts=("begin\ngot\n",)),
    "requeued": Shape(script=ONCE_LONG, act=requeue),
    "evicted": Shape(script=ONCE_LONG, act=evict),
    "deleted": Shape(
        script=LONG,
        act=delete,
        record=("FAILED", "1:0"),
        texts=("begin\n", "begin\npenstock: the job's pod was deleted from outside\n"),
        reason="deleted from outside",
    ),
    "refused": Shape(before=occupy, after=vacate, options=("--nodelist=n4", "--gres=gpu:2")),
    "recovered": Shape(script=WAITING, act=crash_twice, after=go),
    "beside": Shape(before=leave_an_orphan),
}
