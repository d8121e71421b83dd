"""Time of a job from Slurm's allocation to its first output, compared with the same pod created by hand.

The baseline is the job's own pod and Secret, read from the API, renamed, and created again with nodeName set.
"""

from __future__ import annotations

import asyncio
import datetime
import re
import statistics
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import figures
from penstock.kube import client, kinds, kubeconfig, lists
from penstock_lab import testing

SAMPLES = 9
FACTOR, ALLOWANCE = 1.1, 0.1
_TIME = re.compile(r"\b\d{10}\.\d{9}\b")
_ALLOCATED = re.compile(r"\[(\S+)\] (?:sched: Allocate|sched/backfill: _start_job: Started) JobId=(\d+)")


def measure(lab: testing.RunningLab) -> list[figures.Figure]:
    bridged = statistics.median(_job_seconds(lab, number) for number in range(SAMPLES))
    by_hand = asyncio.run(_pods_by_hand(lab))
    limit = FACTOR * by_hand + ALLOWANCE
    return [
        figures.Figure(
            what="start: scheduled → container's first output",
            measured=f"{bridged * 1000:.0f} ms",
            baseline=f"the same pod by hand {by_hand * 1000:.0f} ms",
            ratio=f"{bridged / by_hand:.2f}",
            budget=f"≤ 1.1 × + 100 ms = {limit * 1000:.0f} ms",
            kept=bridged <= limit,
        )
    ]


def _job_seconds(lab: testing.RunningLab, number: int) -> float:
    output = lab.home / f"bench-start-{number}.out"
    job_id = lab.sbatch("#!/bin/sh\ndate +%s.%N\n", f"--output={output}", "--mem=100M")
    lab.accounted(job_id)
    return float(output.read_text().split()[0]) - _scheduled_at(lab, job_id)


def _scheduled_at(lab: testing.RunningLab, job_id: str) -> float:
    """The time of slurmctld's allocation in milliseconds, from its log."""
    for line in reversed((lab.place.log / "slurm" / "slurmctld.log").read_text().splitlines()):
        found = _ALLOCATED.match(line)
        if found and found[2] == job_id:
            return datetime.datetime.fromisoformat(found[1]).astimezone().timestamp()
    raise AssertionError(f"slurmctld.log does not say when job {job_id} was allocated")


async def _pods_by_hand(lab: testing.RunningLab) -> float:
    output = lab.home / "bench-by-hand.out"
    job_id = lab.sbatch("#!/bin/sh\ndate +%s.%N\nsleep 300\n", f"--output={output}", "--mem=100M")
    await asyncio.to_thread(_printed, output)
    api = client.KubeClient(kubeconfig.load(lab.place.admin_kubeconfig))
    try:
        pod, secret = await _objects_of(api, job_id)
        await asyncio.to_thread(_end, lab, job_id)
        found = [await _one_by_hand(api, pod, secret, output, number) for number in range(SAMPLES)]
        return statistics.median(found)
    finally:
        await api.close()


def _end(lab: testing.RunningLab, job_id: str) -> None:
    lab.run(("scancel", job_id))
    lab.accounted(job_id, timeout=60)


async def _objects_of(api: client.KubeClient, job_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    pods = (await lists.everything(api, kinds.PODS, dict)).items
    pod = next(pod for pod in pods if pod["metadata"]["name"] == f"slurm-job-{job_id}")
    namespace, name = pod["metadata"]["namespace"], pod["spec"]["volumes"][0]["secret"]["secretName"]
    return pod, msgspec.json.decode(await api.get(kinds.SECRETS, namespace=namespace, name=name))


async def _one_by_hand(
    api: client.KubeClient, pod: dict[str, Any], secret: dict[str, Any], output: Path, number: int
) -> float:
    """Create Secret and pod, wait for the output, remove them."""
    name, namespace = f"by-hand-{number}", pod["metadata"]["namespace"]
    await asyncio.to_thread(output.unlink, missing_ok=True)
    volumes = [
        volume | {"secret": volume["secret"] | {"secretName": name}} if "secret" in volume else volume
        for volume in pod["spec"]["volumes"]
    ]
    began = time.time()
    metadata = {"name": name, "namespace": namespace}
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": secret["data"]}
    await api.create(kinds.SECRETS, manifest, namespace=namespace)
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": pod["spec"] | {"volumes": volumes},
    }
    made = msgspec.json.decode(await api.create(kinds.PODS, manifest, namespace=namespace))
    printed_at = await asyncio.to_thread(_printed, output)
    await api.delete(kinds.PODS, namespace=namespace, name=name, uid=made["metadata"]["uid"], grace=0)
    return printed_at - began


def _printed(output: Path) -> float:
    """The time written by the script; the agent may have written before."""
    testing.until(lambda: output.exists() and _TIME.search(output.read_text()))
    found = _TIME.search(output.read_text())
    assert found is not None
    return float(found[0])
