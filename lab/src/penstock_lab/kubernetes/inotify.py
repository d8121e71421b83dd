"""The kernel's limit of inotify instances per user, most of which kubelets take.

Beyond it, failures do not name the limit: a kubelet never gets ready, or the end of a container is missed. So
a cluster's needs are checked before it is started. Raising the limit is left to the administrator.
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
"""API server, controller manager and the lab's intake."""
NODE = 6
"""Five for a kubelet (cgroups, plugins, volume plugins, client CA), one for its containerd."""
ROOM = 3
"""Each followed log takes one."""


def needed(nodes: int) -> int:
    """Instances for a cluster with that many nodes."""
    return CONTROL + NODE * nodes + ROOM


def limit() -> int:
    """Instances per user."""
    return int(LIMIT.read_text())


def used() -> int:
    """Instances in use by the current user."""
    return sum(held(process.pid) for process in processes.snapshot() if process.uid == os.geteuid())


def held(pid: int) -> int:
    return sum(target == INSTANCE for target in processes.open_targets(pid))


def require(nodes: int) -> None:
    """Refuse a cluster that would exceed the limit."""
    wanted, taken, most = needed(nodes), used(), limit()
    if taken + wanted > most:
        raise errors.LabError(
            f"a real Kubernetes with {nodes} nodes needs {wanted} inotify instances, "
            f"and {taken} of {most} per user are in use",
            hint=f"Take down an unused lab, or raise the limit: {advice()}",
        )


def advice() -> str:
    """The command that raises the limit."""
    return f"sysctl -w {SETTING}=1024"
