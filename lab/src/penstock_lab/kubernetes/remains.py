"""Whatever a cluster leaves on the machine beside its files: containers, their shims, cgroups, sockets.

Works from what is there and not from what was recorded, so that it also cleans up after a kill -9 of
everything. Mounts and files below the lab's directory are the lab's own teardown's business; a pod's network
interfaces go with its network namespace, which is one of those mounts.
"""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

from penstock_lab import processes
from penstock_lab.kubernetes import cgroups, hostnote, layout

PROGRAMS = frozenset(
    {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kwok"}
)
RUNTIMES = frozenset({"containerd", "containerd-shim-runc-v2", "docker-registry"})
_ROUNDS = 20


def clear(directory: Path) -> None:
    """End and remove all that is of the lab in this directory; LabError when something cannot be removed."""
    _end_daemons(directory)
    for name in _cgroups_of(directory):
        cgroups.remove(name)
    _end_daemons(directory)
    _unlink_shim_sockets(directory)
    hostnote.restore()


def _cgroups_of(directory: Path) -> set[str]:
    pattern = f"{layout.CGROUP_PREFIX}*-{layout.digest(directory)}"
    return {path.name for tree in cgroups.trees() for path in tree.glob(pattern)}


def daemons_of(directory: Path, everything: list[processes.Process]) -> list[processes.Process]:
    """Processes of the cluster in this directory: known by program and by a word that names a file there."""
    return [process for process in everything if _is_program(process) and _speaks_of(process, directory)]


def _is_program(process: processes.Process) -> bool:
    return bool(process.argv) and Path(process.argv[0]).name in PROGRAMS | RUNTIMES


def _speaks_of(process: processes.Process, directory: Path) -> bool:
    """As a word or as an option's value: /srv/lab is another lab than /lab."""
    prefix = f"{directory}/"
    return any(word.startswith(prefix) or f"={prefix}" in word for word in process.argv)


def _end_daemons(directory: Path) -> None:
    for _ in range(_ROUNDS):
        found = daemons_of(directory, processes.snapshot())
        if not found:
            return
        for process in found:
            processes.send(process.identity, signal.SIGKILL)
        processes.wait_gone([process.identity for process in found], seconds=2.0)


def _unlink_shim_sockets(directory: Path) -> None:
    """containerd keeps them in one place for all containerds of a host, under names that only it knows."""
    for note in directory.glob("kubernetes/*/run/io.containerd.runtime.v2.task/*/*/address"):
        with contextlib.suppress(OSError):
            Path(note.read_text().strip().removeprefix("unix://")).unlink()
