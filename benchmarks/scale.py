"""An idle penstockd with a large cluster and a long queue: memory, CPU and API requests.

Nodes and pods are objects in the lab's cluster without kubelets; their status changes as often as in a real
cluster (each node every five minutes). A second penstockd beside the lab's is measured, so that it starts
with the large cluster and has its own metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks import figures, processes
from penstock.kube import client, kinds, kubeconfig
from penstock_lab import ports, testing
from penstock_lab.kubernetes import api

NODES, PODS = 2_000, 10_000
NODE_STATUS_SECONDS = 300
WINDOW = 30.0
MEGABYTES, IDLE_SHARE = 150.0, 0.01
FEW, MANY = 10, 1_000


@dataclass(frozen=True)
class Idle:
    """Measurements of an idle period."""

    megabytes: float
    cpu_share: float
    calls: float


def measure(lab: testing.RunningLab) -> list[figures.Figure]:
    small = _idle(lab)
    grown = _queue_growth(lab)
    asyncio.run(_fill(lab))
    large = _idle(lab, churn=True)
    return [*grown, *_size_figures(small, large)]


def _size_figures(small: Idle, large: Idle) -> list[figures.Figure]:
    where = f"{NODES:,} nodes, {PODS:,} pods"
    return [
        figures.Figure(
            what=f"penstockd's memory, {where}",
            measured=f"{large.megabytes:.0f} MB PSS",
            baseline=f"4 nodes, no pod {small.megabytes:.0f} MB",
            ratio=f"{large.megabytes / small.megabytes:.1f}",
            budget=f"≤ {MEGABYTES:g} MB",
            kept=large.megabytes <= MEGABYTES,
        ),
        figures.Figure(
            what=f"penstockd's idle CPU, {where}",
            measured=f"{large.cpu_share * 100:.2f} % of a core",
            baseline=f"4 nodes, no pod {small.cpu_share * 100:.2f} %",
            ratio=f"{large.cpu_share / max(small.cpu_share, 1e-4):.1f}",
            budget=f"≤ {IDLE_SHARE * 100:g} %",
            kept=large.cpu_share <= IDLE_SHARE,
        ),
        figures.Figure(
            what=f"penstockd's API requests a minute, idle, {where}",
            measured=f"{large.calls:.1f}",
            baseline=f"4 nodes, no pod {small.calls:.1f}",
            ratio=f"{large.calls / max(small.calls, 0.1):.1f}",
        ),
    ]


def _queue_growth(lab: testing.RunningLab) -> list[figures.Figure]:
    """The idle period with few and with many pending jobs."""
    few = _with_pending(lab, FEW)
    many = _with_pending(lab, MANY)
    return [
        figures.Figure(
            what=f"penstockd's idle CPU with {MANY:,} jobs pending",
            measured=f"{many.cpu_share * 100:.2f} % of a core, {many.calls:.1f} API requests a minute",
            baseline=f"{FEW} pending {few.cpu_share * 100:.2f} %, {few.calls:.1f}",
            ratio=f"{many.cpu_share / max(few.cpu_share, 1e-4):.1f}",
            budget=f"≤ {IDLE_SHARE * 100:g} %",
            kept=many.cpu_share <= IDLE_SHARE,
        )
    ]


def _with_pending(lab: testing.RunningLab, count: int) -> Idle:
    job_id = lab.sbatch("#!/bin/sh\ntrue\n", f"--array=1-{count}", "--begin=now+1hour", "--mem=100M")
    try:
        return _idle(lab)
    finally:
        lab.run(("scancel", job_id))


def _idle(lab: testing.RunningLab, *, churn: bool = False) -> Idle:
    with _second_penstockd(lab) as (pid, port):
        testing.until(lambda: _requests(port) > 0, seconds=60)
        time.sleep(5)
        before, calls = processes.cpu_seconds(pid), _requests(port)
        began = time.monotonic()
        if churn:
            _change_statuses(lab, seconds=WINDOW)
        else:
            time.sleep(WINDOW)
        elapsed = time.monotonic() - began
        return Idle(
            megabytes=processes.pss_megabytes(pid),
            cpu_share=(processes.cpu_seconds(pid) - before) / elapsed,
            calls=(_requests(port) - calls) / elapsed * 60,
        )


@contextlib.contextmanager
def _second_penstockd(lab: testing.RunningLab) -> Iterator[tuple[int, int]]:
    settings = json.loads(lab.place.penstockd_conf.read_text())
    with ports.Claims() as claims:
        port = claims.choose_base(1)
    settings |= {"socket": str(lab.place.run / "bench.sock"), "metrics_port": port}
    config = lab.place.etc / "bench-penstockd.json"
    config.write_text(json.dumps(settings))
    argv = [sys.executable, "-m", "penstock", "daemon", "--config", str(config)]
    log = (lab.place.log / "bench-penstockd.log").open("ab")
    with log, subprocess.Popen(argv, env=lab.env, stdout=log, stderr=log, cwd="/") as process:
        try:
            yield process.pid, port
        finally:
            process.terminate()


def _requests(port: int) -> float:
    """API requests so far; 0 until the metrics page is available."""
    try:
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10).read().decode()
    except OSError:
        return 0.0
    lines = [line for line in page.splitlines() if line.startswith("penstock_api_requests_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def _fill(lab: testing.RunningLab) -> None:
    async with client.KubeClient(kubeconfig.load(lab.place.admin_kubeconfig)) as kube:
        for number in range(NODES):
            await kube.create(kinds.NODES, _node(number))
        for number in range(PODS):
            await kube.create(kinds.PODS, _pod(number), namespace="default")


def _node(number: int) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"far{number}", "labels": {"kubernetes.io/hostname": f"far{number}"}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def _pod(number: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi"}}
    container = {"name": "main", "image": "example/app:1", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"far-{number}", "labels": {"app": "far", "tier": "other"}},
        "spec": {"nodeName": f"far{number % NODES}", "containers": [container]},
    }


async def _change_status(kube: client.KubeClient, name: str, ready: dict[str, str]) -> None:
    body = {"status": {"conditions": [ready]}}
    await kube.patch(kinds.NODES, body, name=name, sub="status", strategic=True)


def _change_statuses(lab: testing.RunningLab, *, seconds: float) -> None:
    """Change node statuses as often as that many nodes do."""
    pause, cluster = NODE_STATUS_SECONDS / NODES, api.cluster(lab.place.admin_kubeconfig)
    began = time.monotonic()
    for number in range(int(seconds / pause)):
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": stamp}
        cluster.ask(functools.partial(_change_status, name=f"far{number % NODES}", ready=ready))
        time.sleep(max(0.0, began + (number + 1) * pause - time.monotonic()))
