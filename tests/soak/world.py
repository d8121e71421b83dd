"""Performs a plan's steps on a lab, undoes temporary ones, and records every job."""

from __future__ import annotations

import contextlib
import heapq
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock_lab import spec, testing
from penstock_lab.faultproxy import controlsocket, faultrules
from tests.e2e import breaking, semantics, storms
from tests.soak import plans

T = TypeVar("T")
PATIENCE = 10.0
"""Timeout of Slurm's commands, some of which wait for minutes without slurmctld."""
SCRIPT = """\
#!/bin/sh
echo begin ${SLURM_RESTART_COUNT:-0} >> trace.$SLURM_JOB_ID
sleep @SECONDS@
echo end ${SLURM_RESTART_COUNT:-0} >> trace.$SLURM_JOB_ID
exit @CODE@
"""


class World:
    """The lab, its jobs, and the current outages."""

    def __init__(
        self, lab: testing.RunningLab, note: Callable[..., None], *, requeue: str = "--requeue"
    ) -> None:
        self.lab = lab
        self.note = note
        self.folder = semantics.folder(lab, "soak")
        self.name = f"{self.folder.name}-"
        """Prefix of the jobs' names; the script's exit code follows."""
        self.switch = controlsocket.Control(lab.place.fault_proxy_control)
        self.requeue = requeue
        self.cancelled: set[str] = set()
        self.jobs: list[str] = []
        """Ids reported by sbatch; an array has one for all its tasks."""
        self._pending: set[str] = set()
        self._undo: list[tuple[float, int, str, Callable[[], None]]] = []
        self._busy: set[str] = set()
        self._cluster = breaking.DevCluster(lab) if spec.load(lab.place).kubernetes == spec.DEV else None

    # -- time ----------------------------------------------------------------------------------------

    def tidy(self, *, everything: bool = False) -> None:
        """End the outages that are due."""
        while self._undo and (everything or self._undo[0][0] <= time.monotonic()):
            _, _, what, undo = heapq.heappop(self._undo)
            self.note("undo", what=what)
            undo()
            self._busy.discard(what)

    def _for(self, seconds: float, what: str, do: Callable[[], None], undo: Callable[[], None]) -> None:
        """Start an outage, unless it is already in progress."""
        if what in self._busy:
            return
        self._busy.add(what)
        heapq.heappush(self._undo, (time.monotonic() + seconds, len(self._busy), what, undo))
        do()

    # -- steps ---------------------------------------------------------------------------------------

    def do(self, step: plans.Step) -> None:
        """Perform a step; a Slurm command may fail, since the job has ended or slurmctld is down."""
        method: Callable[[plans.Step], None] = getattr(self, f"_{step.kind.replace('-', '_')}")
        method(step)

    def _submit(self, step: plans.Step) -> None:
        self._sbatch(step, f"--gres=gpu:{step.amount}" if step.pick < 0.5 else f"--ntasks={step.amount}")

    def _gang(self, step: plans.Step) -> None:
        self._sbatch(step, f"--nodes={2 + step.amount // 4}")

    def _array(self, step: plans.Step) -> None:
        self._sbatch(step, f"--array=0-{step.amount}")

    def _sbatch(self, step: plans.Step, *options: str) -> None:
        script = SCRIPT.replace("@SECONDS@", str(step.seconds)).replace("@CODE@", str(step.code))
        fixed = (self.requeue, "--mem=512M", "--output=/dev/null", f"--job-name={self.name}{step.code}")
        argv = ("sbatch", "--parsable", *fixed, *options)
        try:
            answer = self.lab.run_as_user(argv, cwd=self.folder, stdin=script, check=False, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.note("not submitted", why="no answer; should there be a job, it is judged like all others")
            return
        job_id = answer.stdout.strip()
        if answer.returncode or not job_id.isdigit():
            self.note("not submitted", why=answer.stderr.strip()[-200:])
            return
        self.jobs.append(job_id)
        self.note("submitted", job=job_id, options=options)

    def _cancel(self, step: plans.Step) -> None:
        self.cancelled.update(self._slurm(step, "scancel"))

    def _requeue(self, step: plans.Step) -> None:
        self._slurm(step, "scontrol", "requeue")

    def _slurm(self, step: plans.Step, *words: str) -> list[str]:
        """The affected jobs."""
        recent = self.jobs[-12:]
        if not recent:
            return []
        job_id = _picked(recent, step)
        self.note(step.kind, job=job_id)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.lab.run((*words, job_id), check=False, timeout=PATIENCE)
        return [job_id]

    def _foreign(self, step: plans.Step) -> None:
        pod = storms.foreign_pod(f"foreign-{step.number}", "", gpus=step.amount)
        del pod["spec"]["nodeName"]
        name = pod["metadata"]["name"]
        apply = ("kubectl", "apply", "-f", "-")
        delete = ("kubectl", "delete", "pod", name, "--wait=false", "--ignore-not-found")
        self._for(
            step.seconds * 2,
            name,
            lambda: void(self.lab.run(apply, stdin=json.dumps(pod))),
            lambda: void(self.lab.run(delete)),
        )

    def _delete_pod(self, step: plans.Step) -> None:
        argv = ("kubectl", "get", "pods", "-A", "-l", "app=slurm-job", "-o", "json")
        found = json.loads(self.lab.run(argv).stdout)["items"]
        if found:
            meta = _picked(found, step)["metadata"]
            self.note(step.kind, pod=meta["name"])
            delete = ("kubectl", "delete", "pod", "-n", meta["namespace"], meta["name"], "--wait=false")
            self.lab.run(delete, check=False)

    def _node_lost(self, step: plans.Step) -> None:
        self._break_node(step, {"ready": False})

    def _node_gone(self, step: plans.Step) -> None:
        self._break_node(step, {"gone": True})

    def _break_node(self, step: plans.Step, fault: dict[str, object]) -> None:
        if self._cluster is None:
            return
        node = self._node(step)
        self._for(
            step.seconds,
            f"node {node}",
            lambda: self._set_node(node, fault),
            lambda: self._set_node(node, {}),
        )

    def _set_node(self, node: str, fault: dict[str, object]) -> None:
        self.note("node", node=node, fault=fault)
        if self._cluster is not None:
            self._cluster.set(f"nodes/{node}", fault)

    def _cordon(self, step: plans.Step) -> None:
        node = self._node(step)
        self._for(
            step.seconds,
            f"cordon {node}",
            lambda: void(self.lab.run(("kubectl", "cordon", node), check=False)),
            lambda: void(self.lab.run(("kubectl", "uncordon", node), check=False)),
        )

    def _fault(self, step: plans.Step) -> None:
        chance = plans.PROBABILISTIC.get(step.fault, 1.0)
        wanted = {"fault": step.fault, "chance": chance, "seconds": 0.5, "status": 500 + step.amount}
        rule = faultrules.Rule(**wanted)  # type: ignore[arg-type]  # a table of values of several types
        self._for(step.seconds, "api", lambda: self.switch.set(rule), self.switch.clear)
        self.note(step.kind, fault=step.fault, seconds=step.seconds)

    def _kill_penstockd(self, step: plans.Step) -> None:
        self._bring_down("penstockd", step)

    def _restart_slurmctld(self, step: plans.Step) -> None:
        self._bring_down("slurmctld", step)

    def _bring_down(self, name: str, step: plans.Step) -> None:
        if not self._busy & {"penstockd", "slurmctld"}:  # one `lab up` brings both back
            self.note(step.kind, seconds=step.seconds)
            self._for(
                step.seconds,
                name,
                lambda: storms.kill(self.lab, name),
                lambda: storms.restart(self.lab),
            )

    def _node(self, step: plans.Step) -> str:
        nodes = spec.load(self.lab.place).node_specs
        return _picked(nodes, step).name

    # -- the end -------------------------------------------------------------------------------------

    def calm(self) -> None:
        """End all outages and release delayed jobs."""
        self.tidy(everything=True)
        self.switch.clear()
        if self._cluster is not None:
            self._cluster.__exit__()
        kept = ("kubectl", "delete", "pods", "-n", "default", "--all", "--wait=false")
        self.lab.run(kept, check=False)

    def hurry(self) -> None:
        """Start delayed jobs now, if they were also in the queue the last time: slurmd runs no Epilog on
        nodes without a step for a job that starts again in the second in which it was requeued.
        """
        pending = set(self.lab.run(("squeue", "-h", "-t", "PENDING", "-r", "-o", "%A")).stdout.split())
        for job_id in pending & self._pending:
            self.lab.run(("scontrol", "update", f"JobId={job_id}", "StartTime=now"), check=False)
        self._pending = pending


def _picked(candidates: Sequence[T], step: plans.Step) -> T:
    return candidates[int(step.pick * len(candidates))]


def void(result: object) -> None:
    """A step that submits nothing."""
