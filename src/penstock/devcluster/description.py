"""All that podinit has to know to start one container."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from penstock.devcluster import children, environment, volumes
from penstock.devcluster.statuses import Json
from penstock.devcluster.store import Store


class Place(Protocol):
    """What a description depends on besides the pod."""

    store: Store
    isolate: bool


def describe(pod: Json, container: Json, sources: dict[str, Path], directory: Path, place: Place) -> Json:
    """The description, or a ConfigError when something the container refers to is missing."""
    user = environment.user_of(pod, container)
    variables = environment.Environment(pod, place.store).of(container, user)
    mounts = volumes.mounts_of(container, sources)
    if not place.isolate:
        mounts = _mounts_without_privilege(mounts)
    else:
        mounts = [*mounts, _last_words(container, directory)]
    argv = environment.command_of(container, variables)
    if container["image"] == environment.BARE_IMAGE and argv[0] != environment.BARE_PROGRAM:
        raise children.StartError(f'exec: "{argv[0]}": stat {argv[0]}: no such file or directory')
    root = directory / "root"
    root.mkdir(parents=True, exist_ok=True)
    context = {**(pod["spec"].get("securityContext") or {}), **(container.get("securityContext") or {})}
    return {
        "argv": argv,
        "env": variables,
        "cwd": container.get("workingDir") or "/",
        "uid": user.uid,
        "gid": user.gid,
        "groups": list(user.groups),
        "isolate": place.isolate,
        "hostname": pod["spec"].get("hostname") or pod["metadata"]["name"][:63],
        "root": str(root),
        "readonly_root": bool(context.get("readOnlyRootFilesystem")),
        "mounts": [asdict(mount) for mount in mounts],
    }


def _last_words(container: Json, directory: Path) -> volumes.Mount:
    """The file in which a container may say why it ended."""
    path = directory / f"{container['name']}.termination"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    path.chmod(0o666)
    return volumes.Mount(source=str(path), target=container["terminationMessagePath"], readonly=False)


def termination_message(directory: Path, container: str) -> str:
    """What it said there, as much of it as kubelet would take."""
    path = directory / f"{container}.termination"
    return path.read_bytes()[:4096].decode(errors="replace") if path.exists() else ""


def _mounts_without_privilege(mounts: list[volumes.Mount]) -> list[volumes.Mount]:
    """Without root nothing can be mounted: a volume works only where it is on this host anyway."""
    for mount in mounts:
        if os.path.realpath(mount.source) != os.path.realpath(mount.target):
            why = f"volume at {mount.target} needs a mount, and the dev cluster does not run as root"
            raise children.StartError(why)
    return []
