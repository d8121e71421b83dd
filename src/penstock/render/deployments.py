"""penstockd as a pod, on slurmctld's host, where munge, slurm.conf, users and the socket are.

It uses the host's network, because slurmctld and its hooks run on the host. It starts as root to become
SlurmUser, as slurmctld expects, and keeps only the capabilities for that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.render import manifests

Manifest = dict[str, Any]
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
PROBE_SECONDS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Daemon:
    name: str
    namespace: str
    image: str
    command: tuple[str, ...]  # with `--ping` it is the readiness probe
    node: str
    folders: tuple[str, ...]  # of the host, writable
    readable: tuple[str, ...]  # of the host, read-only
    api: str = ""  # host:port, instead of the cluster's service
    pull_secrets: tuple[str, ...] = ()
    path: str = ""  # PATH, if the image's own lacks Slurm's commands


def render(daemon: Daemon) -> Manifest:
    app = {"app": daemon.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": manifests.meta(daemon.name, namespace=daemon.namespace),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": app},
            "template": {"metadata": {"labels": app | manifests.labels()}, "spec": _pod(daemon)},
        },
    }


def _pod(daemon: Daemon) -> Manifest:
    paths = _paths(daemon)
    spec: Manifest = {
        "nodeSelector": {"kubernetes.io/hostname": daemon.node},
        "tolerations": [{"key": CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule"}],
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "serviceAccountName": daemon.name,
        "terminationGracePeriodSeconds": 20,
        "containers": [_container(daemon, paths)],
        "volumes": [{"name": name, "hostPath": {"path": path}} for name, path, _ in paths],
    }
    if daemon.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in daemon.pull_secrets]
    return spec


def _container(daemon: Daemon, paths: Sequence[tuple[str, str, bool]]) -> Manifest:
    environment = [{"name": name, "value": value} for name, value in _environment(daemon)]
    probe = {"exec": {"command": [*daemon.command, "--ping"]}, "timeoutSeconds": PROBE_SECONDS}
    return {
        "name": daemon.name,
        "image": daemon.image,
        "command": list(daemon.command),
        **({"env": environment} if environment else {}),
        "readinessProbe": probe | {"periodSeconds": 10},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "SETUID", "SETGID"]},
        },
        "volumeMounts": [
            {"name": name, "mountPath": path} | ({"readOnly": True} if read_only else {})
            for name, path, read_only in paths
        ],
    }


def _environment(daemon: Daemon) -> Iterator[tuple[str, str]]:
    if daemon.api:
        host, _, port = daemon.api.rpartition(":")
        yield "KUBERNETES_SERVICE_HOST", host
        yield "KUBERNETES_SERVICE_PORT", port
    if daemon.path:
        yield "PATH", daemon.path


def _paths(daemon: Daemon) -> list[tuple[str, str, bool]]:
    """Name, path and whether it is read-only; each path once."""
    written = dict.fromkeys(daemon.folders, False)
    every = dict.fromkeys(daemon.readable, True) | written
    return [(f"host-{number}", path, every[path]) for number, path in enumerate(sorted(every))]
