"""Folders that a script wants mounted: are they there?

A kubelet makes a folder that is missing below a shared mount, as root and on the shared storage. So the
launcher looks first, as the job's owner, and what it misses is refused. Who speaks to penstockd without the
launcher can only have an empty folder made.
"""

from __future__ import annotations

from penstock.bridge import gang
from penstock.model import launches


def require_folders(request: launches.LaunchRequest) -> None:
    """GangRefused for the first folder that the job's owner does not see."""
    for mount in request.pod.mounts:
        if mount.source.encode() in request.missing_folders:
            raise gang.GangRefused(f"#K8S_MOUNT={mount.source}: there is no such folder")
