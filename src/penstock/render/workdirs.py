"""A job's working directory and HOME in its pod.

Both are the site's own if pods see them under the same path. Otherwise the working directory is /tmp, and
HOME is an empty volume mounted at the user's home, so that `~` means the same as elsewhere. Both vanish
with the pod. Where no volume can be mounted (over the image's own folders, or over a shared mount within
the home) HOME is OWN_HOME.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from penstock import wellknown
from penstock.model import launches
from penstock.model.jobspec import PodSpec

TMP = "/tmp"  # noqa: S108  # the pod's own
OWN_HOME = "/penstock-home"
_NO_PLACE = frozenset(
    {
        *("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32"),
        *("proc", "run", "sbin", "sys", "usr"),
        *(path.strip("/") for path in (wellknown.AGENT_MOUNT, wellknown.RUN_MOUNT, wellknown.OUTPUT_MOUNT)),
    }
)
"""No home is mounted below these: they hold the image's programs or mounts of the cluster."""


class Home(NamedTuple):
    """HOME of a job; `made` if it is an empty volume."""

    path: str
    made: bool


def visible(pod: PodSpec, shared_mounts: Iterable[str]) -> tuple[str, ...]:
    """Folders of the site that the job's container sees."""
    return (*shared_mounts, *(mount.target for mount in pod.mounts))


def lies_in(path: bytes, folders: Iterable[str]) -> bool:
    """Whether the path is one of the folders, or below one."""
    known = map(os.fsencode, folders)
    return any(path == folder or path.startswith(folder + b"/") for folder in known)


def workdir_of(request: launches.LaunchRequest, shared_mounts: Iterable[str]) -> bytes:
    """The script's own choice, else the submit directory if pods see it, else /tmp."""
    if request.pod.workdir:
        return request.pod.workdir.encode()
    seen = lies_in(request.workdir, visible(request.pod, shared_mounts))
    return request.workdir if seen else TMP.encode()


def lost_workdir(request: launches.LaunchRequest, shared_mounts: Iterable[str]) -> bytes:
    """The submit directory if pods do not see it and neither script nor image sets another; else empty."""
    chosen = request.pod.workdir or request.pod.own_entrypoint
    return b"" if chosen or workdir_of(request, shared_mounts) == request.workdir else request.workdir


def home_of(owner: launches.Owner, pod: PodSpec, shared_mounts: Iterable[str]) -> Home:
    """The user's home if pods see it, else a volume at the same path, if possible."""
    seen = visible(pod, shared_mounts)
    if owner.home and lies_in(os.fsencode(owner.home), seen):
        return Home(owner.home, made=False)
    return Home(owner.home if _can_be_made(owner.home, seen) else OWN_HOME, made=True)


def _can_be_made(path: str, seen: Iterable[str]) -> bool:
    first, *rest = path.split("/")[1:] or [""]
    if not path.startswith("/") or not rest or first in _NO_PLACE:
        return False
    if path != os.path.normpath(path) or ":" in path or not path.isprintable():
        return False
    return not any(lies_in(os.fsencode(folder), (path,)) for folder in seen)
