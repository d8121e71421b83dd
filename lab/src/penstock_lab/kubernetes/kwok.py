"""Thousands of simulated nodes: a real control plane, and kwok in place of kubelets.

Pods on these nodes run and end by timers, so benchmarks measure the bridge and not containers. A job's pod
succeeds after the annotation `penstock.dev/pretend-milliseconds`, else after RUN_MILLISECONDS.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock import errors, wellknown
from penstock.kube import client, kinds, types
from penstock_lab import component, files, health, ports
from penstock_lab.kubernetes import api, controlplane, layout

KWOK = "kwok"
NODES = "nodes"
FAKE = {"kwok.x-k8s.io/node": "fake"}
RUN_MILLISECONDS = 1000
DELAY = "penstock.dev/pretend-milliseconds"
LEASE_SECONDS = 40
AT_ONCE = 8
_READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'
_CONDITIONS = """\
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ Now | Quote }}
  lastTransitionTime: {{ Now | Quote }}
{{ end }}
phase: Running
"""
_CONTAINERS = """\
phase: {phase}
conditions:
- type: Ready
  status: "{ready}"
  lastTransitionTime: {{{{ Now | Quote }}}}
- type: PodScheduled
  status: "True"
  lastTransitionTime: {{{{ Now | Quote }}}}
containerStatuses:
{{{{ range .spec.containers }}}}
- name: {{{{ .name | Quote }}}}
  image: {{{{ .image | Quote }}}}
  ready: false
  restartCount: 0
  state:
    {state}
{{{{ end }}}}
"""
_RUNNING = "running: {startedAt: {{ Now | Quote }}}"
_ENDED = (
    "terminated: {exitCode: 0, reason: Completed, "
    "startedAt: {{ Now | Quote }}, finishedAt: {{ Now | Quote }}}"
)


def components(cluster: layout.Cluster) -> tuple[component.Component, ...]:
    options = {
        "kubeconfig": cluster.admin_kubeconfig,
        "config": cluster.stages,
        "manage-nodes-with-annotation-selector": "kwok.x-k8s.io/node=fake",
        "node-ip": ports.LOOPBACK,
        "node-lease-duration-seconds": LEASE_SECONDS,
        "server-address": f"{ports.LOOPBACK}:{cluster.registry_port}",
    }
    return (
        component.Component(
            name=KWOK,
            after=(controlplane.APISERVER,),
            argv=(str(cluster.pretender), *controlplane.flags(options)),
            port=cluster.registry_port,
            check=lambda: health.listens(cluster.registry_port),
        ),
    )


def prepare(cluster: layout.Cluster) -> str:
    documents = (msgspec.json.encode(stage) for stage in stages())
    files.write(cluster.stages, b"\n---\n".join(documents) + b"\n")
    return f"{len(cluster.nodes)} nodes"


def make_nodes(cluster: layout.Cluster) -> str:
    """Create the missing nodes."""
    admin = api.cluster(cluster.admin_kubeconfig)
    there = {node.metadata.name for node in admin.items(kinds.NODES, types.Object)}
    wanted = [machine for machine in cluster.machines if machine.name not in there]
    admin.ask(lambda kube: _make_nodes(kube, wanted))
    return f"{len(cluster.machines)} simulated"


async def _make_nodes(kube: client.KubeClient, machines: Sequence[layout.Machine]) -> None:
    for first in range(0, len(machines), AT_ONCE):
        some = machines[first : first + AT_ONCE]
        await asyncio.gather(*(_make_node(kube, machine) for machine in some))


async def _make_node(kube: client.KubeClient, machine: layout.Machine) -> None:
    with contextlib.suppress(errors.KubeConflict):
        await kube.create(kinds.NODES, render_node(machine))


def render_node(machine: layout.Machine) -> dict[str, Any]:
    """A node with the lab's CPUs, memory and GPUs."""
    amount = {
        "cpu": str(machine.spec.cpus),
        "memory": f"{machine.spec.memory_mb}Mi",
        "pods": "250",
        wellknown.GPU_RESOURCE: str(machine.spec.gpus),
    }
    labels = {"kubernetes.io/hostname": machine.name, "kubernetes.io/os": "linux"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": machine.name, "annotations": FAKE, "labels": labels},
        "status": {"capacity": amount, "allocatable": amount},
    }


def stages() -> tuple[dict[str, Any], ...]:
    """kwok's stages: automatic changes of nodes and pods."""
    alive = _expression(".metadata.deletionTimestamp", "DoesNotExist")
    ended = _CONTAINERS.format(phase="Succeeded", ready="False", state=_ENDED)
    running = _CONTAINERS.format(phase="Running", ready="True", state=_RUNNING)
    wait = {
        "durationMilliseconds": RUN_MILLISECONDS,
        "durationFrom": {"expressionFrom": f'.metadata.annotations["{DELAY}"]'},
    }
    return (
        _stage("node-ready", "Node", [_expression(_READY, "NotIn", "True")], {"statusTemplate": _CONDITIONS}),
        _stage(
            "pod-run",
            "Pod",
            [alive, _expression(".status.phase", "In", "Pending")],
            {"statusTemplate": running},
        ),
        _stage(
            "pod-end",
            "Pod",
            [
                alive,
                _expression(".status.phase", "In", "Running"),
                _expression(f'.metadata.labels["{wellknown.LABEL_APP}"]', "In", wellknown.APP_VALUE),
            ],
            {"statusTemplate": ended},
            delay=wait,
        ),
        _stage("pod-go", "Pod", [_expression(".metadata.deletionTimestamp", "Exists")], {"delete": True}),
    )


def _stage(
    name: str, kind: str, expressions: list[Any], following: dict[str, Any], *, delay: Any = None
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": expressions},
        "next": following,
    }
    if delay is not None:
        spec["delay"] = delay
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def _expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    found: dict[str, Any] = {"key": key, "operator": operator}
    return found | ({"values": list(values)} if values else {})
