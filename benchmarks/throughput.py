"""Costs of a no-op job: CPU of Penstock's components compared with plain Slurm, and jobs per second as pods,
in plain Slurm with the same slurm.conf, and with the usual kubectl glue.

The glue is what sites use today: a Prolog that checks the node with kubectl, applies a pod and waits for it,
and an Epilog that fetches its log and deletes it. It runs in the same lab for the unbridged partition.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import figures, parts, processes
from penstock_lab import testing

JOBS = 500
GLUE_JOBS = 30
COST = 1.0
"""Maximum of Penstock's CPU per job, relative to plain Slurm's."""
CLUSTER = "devcluster"
"""The component with Kubernetes' share, which is neither Slurm's nor Penstock's."""

PROLOG = """#!/bin/sh
[ "$SLURM_JOB_PARTITION" = host ] || exit 0
export KUBECONFIG={kubeconfig} PATH={path}
kubectl get pods --all-namespaces --field-selector spec.nodeName=$SLURMD_NODENAME -o json |
    jq '[.items[].spec.containers[].resources.requests.cpu] | length' > /dev/null || exit 1
kubectl apply -f - > /dev/null <<END || exit 1
{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "glue-$SLURM_JOB_ID", "namespace": "default"}},
 "spec": {{"nodeName": "$SLURMD_NODENAME", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
  "containers": [{{"name": "job", "image": "{image}", "command": ["sleep", "60"],
   "resources": {{"requests": {{"cpu": "1", "memory": "100Mi"}}}}}}]}}}}
END
kubectl wait --for=condition=Ready --timeout=60s pod/glue-$SLURM_JOB_ID > /dev/null
"""

EPILOG = """#!/bin/sh
[ "$SLURM_JOB_PARTITION" = host ] || exit 0
export KUBECONFIG={kubeconfig} PATH={path}
kubectl logs glue-$SLURM_JOB_ID > /dev/null
kubectl delete pod glue-$SLURM_JOB_ID --wait > /dev/null
"""


def measure(lab: testing.RunningLab) -> list[figures.Figure]:
    _rate(lab, "host", 20)
    with processes.metered(parts.pids_by_part(lab)) as meter:
        before = meter.milliseconds() if meter else {}
        plain = _rate(lab, "host", JOBS)
        between = meter.milliseconds() if meter else {}
        bridged = _rate(lab, "gpu", JOBS, results=True)
        after = meter.milliseconds() if meter else {}
    glue = _glue_rate(lab)
    costs = [
        Cost(name, (between[name] - before[name]) / JOBS, (after[name] - between[name]) / JOBS)
        for name in sorted(before)
    ]
    return [
        *_cost(costs),
        figures.Figure(
            what=f"throughput: {JOBS} no-op jobs",
            measured=f"{bridged:.1f} jobs/s",
            baseline=f"plain Slurm {plain:.1f} jobs/s",
            ratio=f"{bridged / plain:.2f}",
        ),
        figures.Figure(
            what=f"throughput against the glue ({GLUE_JOBS} jobs)",
            measured=f"{bridged:.1f} jobs/s",
            baseline=f"kubectl in Prolog and Epilog {glue:.2f} jobs/s",
            ratio=f"{bridged / glue:.1f}",
        ),
    ]


@dataclass(frozen=True)
class Cost:
    """Milliseconds of a component's CPU per job, in plain Slurm and as a pod."""

    part: str
    plain: float
    bridged: float


def _cost(costs: list[Cost]) -> list[figures.Figure]:
    """Penstock's own CPU: the difference between a job as a pod and in plain Slurm, without Kubernetes'
    share. Hooks and launcher are children of Slurm's daemons and counted there.
    """
    if not costs:
        return [figures.Figure(what="CPU of a job", measured="no cpuacct here", baseline="–", ratio="–")]
    plain = sum(cost.plain for cost in costs if cost.part != CLUSTER)
    own = sum(cost.bridged for cost in costs if cost.part != CLUSTER) - plain
    return [
        figures.Figure(
            what="CPU of a no-op job: Penstock's own parts",
            measured=f"{own:.1f} ms",
            baseline=f"plain Slurm {plain:.1f} ms",
            ratio=f"{own / plain:.2f}",
            budget=f"≤ {COST} ×",
            kept=own <= COST * plain,
            is_goal=True,
        ),
        *(_share(cost) for cost in costs if cost.plain >= 0.5 or cost.bridged >= 0.5),
    ]


def _share(cost: Cost) -> figures.Figure:
    return figures.Figure(
        what=f"  CPU of the whole job in {cost.part}",
        measured=f"{cost.bridged:.1f} ms",
        baseline=f"plain Slurm {cost.plain:.1f} ms",
        ratio=f"{cost.bridged / cost.plain:.1f}" if cost.plain >= 0.5 else "–",
    )


def _rate(lab: testing.RunningLab, partition: str, count: int, *, results: bool = False) -> float:
    """Jobs per second, from submission until the last has left the queue. Returns when all have ended and,
    with `results`, their results are collected, which the rate does not include.
    """
    before = parts.collected(lab)
    began = time.monotonic()
    options = (f"--array=1-{count}", f"--partition={partition}", "--mem=100M", "--output=/dev/null")
    job_id = lab.sbatch("#!/bin/sh\ntrue\n", *options)
    while lab.run(("squeue", "--noheader", f"--jobs={job_id}"), check=False).stdout.strip():
        time.sleep(0.2)
    elapsed = time.monotonic() - began
    testing.until(lambda: parts.states(lab, job_id) == ["COMPLETED"] * count, seconds=60)
    if results:
        testing.until(lambda: parts.collected(lab) == before + count, seconds=120)
    return count / elapsed


def _glue_rate(lab: testing.RunningLab) -> float:
    """The same with the glue; restores slurm.conf afterwards."""
    usual = lab.place.slurm_conf.read_text()
    path = f"{lab.place.bin}:/usr/sbin:/usr/bin:/sbin:/bin"
    words = {"kubeconfig": lab.place.admin_kubeconfig, "path": path, "image": parts.default_image(lab)}
    prolog, epilog = lab.place.libexec / "glue-prolog", lab.place.libexec / "glue-epilog"
    for script, text in ((prolog, PROLOG), (epilog, EPILOG)):
        script.write_text(text.format(**words))
        script.chmod(0o755)
    kept = [line for line in usual.splitlines() if not line.startswith(("Prolog=", "Epilog="))]
    try:
        _reconfigure(lab, "\n".join([*kept, f"Prolog={prolog}", f"Epilog={epilog}", ""]))
        return _rate(lab, "host", GLUE_JOBS)
    finally:
        _reconfigure(lab, usual)


def _reconfigure(lab: testing.RunningLab, text: str) -> None:
    _replace(lab.place.slurm_conf, text)
    lab.run(("scontrol", "reconfigure"))
    time.sleep(2)


def _replace(path: Path, text: str) -> None:
    path.write_text(text)
