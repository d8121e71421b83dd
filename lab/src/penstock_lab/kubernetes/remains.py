"""Removes what a cluster leaves on the machine besides its files: containers, shims, cgroups, sockets.

Works from what exists, not from records, so it also cleans up after a kill -9 of everything. Mounts and files
in the lab's directory are left to the lab's teardown; a pod's network interfaces disappear with its network
namespace, which is one of those mounts.
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
    """Kill and remove everything of the cluster in this directory; raises LabError if something remains."""
    _end_daemons(directory)
    pattern = f"{layout.CGROUP_PREFIX}*-{layout.digest(directory)}"
    for name in {path.name for tree in cgroups.trees() for path in tree.glob(pattern)}:
        cgroups.remove(name)
    _end_daemons(directory)
    _unlink_shim_sockets(directory)
    hostnote.restore()


def daemons_of(directory: Path, everything: list[processes.Process]) -> list[processes.Process]:
    """The cluster's processes: known programs with an argument that is a path in this directory."""
    return [process for process in everything if _is_program(process) and _speaks_of(process, directory)]


def _is_program(process: processes.Process) -> bool:
    return bool(process.argv) and Path(process.argv[0]).name in PROGRAMS | RUNTIMES


def _speaks_of(process: processes.Process, directory: Path) -> bool:
    """Whether an argument or an option's value is a path in the directory: /srv/lab is not /lab."""
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
    """All containerds of a host share one directory for them; the tasks' address files have the names."""
    for address in directory.glob("kubernetes/*/run/io.containerd.runtime.v2.task/*/*/address"):
        with contextlib.suppress(OSError):
            Path(address.read_text().strip().removeprefix("unix://")).unlink()
