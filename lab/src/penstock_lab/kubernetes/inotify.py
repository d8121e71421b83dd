"""The kernel lets a user have only so many inotify instances, and kubelets are where they go.

Whoever asks for one more is refused in words that name neither the limit nor the lab that used it up: a
kubelet that never gets ready, a container that is not seen to end. So what a cluster takes is counted before
it is started. The limit itself is the administrator's to change.
"""

from __future__ import annotations

import os
from pathlib import Path

from penstock import errors
from penstock_lab import processes

SETTING = "fs.inotify.max_user_instances"
LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
INSTANCE = "anon_inode:inotify"
CONTROL = 3
"""API server, controller manager, and the intake of the lab itself."""
NODE = 6
"""Five of a kubelet (cgroups, plugins, volume plugins, its clients' authority), one of its containerd."""
ROOM = 3
"""Logs that are being followed take one each, for as long as somebody looks."""


def needed(nodes: int) -> int:
    """How many a cluster with that many nodes takes."""
    return CONTROL + NODE * nodes + ROOM


def limit() -> int:
    """How many one user may have."""
    return int(LIMIT.read_text())


def used() -> int:
    """How many root has now; those of another user do not count."""
    return sum(held(process.pid) for process in processes.snapshot() if process.uid == os.geteuid())


def held(pid: int) -> int:
    """How many one process has."""
    return sum(target == INSTANCE for target in processes.open_targets(pid))


def require(nodes: int) -> None:
    """Complain while nothing has been started yet."""
    wanted, taken, most = needed(nodes), used(), limit()
    if taken + wanted > most:
        raise errors.LabError(
            f"a real Kubernetes with {nodes} nodes takes {wanted} inotify instances, "
            f"and {taken} of the {most} that one user may have are in use",
            hint=f"Take down a lab that nobody needs, or raise the limit: {advice()}",
        )


def advice() -> str:
    """What an administrator does about it."""
    return f"sysctl -w {SETTING}=1024"
