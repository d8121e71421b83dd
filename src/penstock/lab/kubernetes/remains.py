"""Whatever a cluster leaves on the machine beside its files: containers, their shims, cgroups, sockets.

Works from what is there and not from what was recorded, so that it also cleans up after a kill -9 of
everything. Mounts and files below the lab's directory are the lab's own teardown's business; a pod's network
interfaces go with its network namespace, which is one of those mounts.
"""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

from penstock.lab import processes
from penstock.lab.kubernetes import cgroups, layout, nodeview

PROGRAMS = frozenset(
    {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kwok"}
)
RUNTIMES = frozenset({"containerd", "containerd-shim-runc-v2", "docker-registry"})
SHIM_SOCKETS = (Path("/run/containerd/s"), Path("/run/containerd"))
_ROUNDS = 20


def clear(cluster: layout.Cluster) -> None:
    """End and remove all of it; LabError when something cannot be removed."""
    _end_daemons(cluster.directory)
    cgroups.remove(cluster.cgroup)
    _end_daemons(cluster.directory)
    _unlink_shim_sockets(cluster)
    _remove_empty(*SHIM_SOCKETS, nodeview.DEVICE_PLUGINS)
    restore_forwarding(cluster)


def daemons_of(directory: Path, everything: list[processes.Process]) -> list[processes.Process]:
    """Processes of the cluster in this directory: known by program and by a word that names a file there."""
    return [process for process in everything if _is_program(process) and _speaks_of(process, directory)]


def _is_program(process: processes.Process) -> bool:
    return bool(process.argv) and Path(process.argv[0]).name in PROGRAMS | RUNTIMES


def _speaks_of(process: processes.Process, directory: Path) -> bool:
    return any(f"{directory}/" in word for word in process.argv)


def _end_daemons(directory: Path) -> None:
    for _ in range(_ROUNDS):
        found = daemons_of(directory, processes.snapshot())
        if not found:
            return
        for process in found:
            processes.send(process.identity, signal.SIGKILL)
        processes.wait_gone([process.identity for process in found], seconds=2.0)


def _unlink_shim_sockets(cluster: layout.Cluster) -> None:
    """containerd keeps them in one place for all containerds of a host, under names that only it knows."""
    for machine in cluster.machines:
        for note in machine.containerd_state.glob("io.containerd.runtime.v2.task/*/*/address"):
            with contextlib.suppress(OSError):
                Path(note.read_text().strip().removeprefix("unix://")).unlink()


def _remove_empty(*folders: Path) -> None:
    """Those of the host's directories that nobody else has put anything into."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


def remember_forwarding(cluster: layout.Cluster) -> None:
    """Pods reach each other through the host, which the network plugin makes forward packets."""
    note = cluster.state / "ip_forward"
    if not note.exists():
        note.write_text(FORWARDING.read_text())


def restore_forwarding(cluster: layout.Cluster) -> None:
    """As it was before this cluster, unless another one still needs it."""
    note = cluster.state / "ip_forward"
    others = [path for path in cgroups.trees() for _ in path.glob(f"{layout.CGROUP_PREFIX}*")]
    if note.exists() and not others:
        FORWARDING.write_text(note.read_text())
