"""A pod's volumes as directories and files of this host, ready to be bound into its containers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.devcluster import environment, kinds
from penstock.devcluster.kinds import Kind
from penstock.devcluster.statuses import Json
from penstock.devcluster.store import Store

_TYPE_TESTS: Final[dict[str, Callable[[Path], bool]]] = {
    "Directory": Path.is_dir,
    "DirectoryOrCreate": Path.is_dir,
    "File": Path.is_file,
    "FileOrCreate": Path.is_file,
    "Socket": Path.is_socket,
    "": lambda path: True,
}


class MountError(Exception):
    """A volume is not there yet: the pod stays ContainerCreating, and is tried again."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One bind mount of a container."""

    source: str
    target: str
    readonly: bool


class Volumes:
    """Makes the volumes of one pod under its own directory; they go away with that directory."""

    def __init__(self, pod: Json, directory: Path, store: Store) -> None:
        self._pod = pod
        self._directory = directory
        self._store = store
        self._group = (pod["spec"].get("securityContext") or {}).get("fsGroup")

    def prepare(self) -> dict[str, Path]:
        """Where each volume that a container mounts is now; raises MountError when one cannot be had yet."""
        spec = self._pod["spec"]
        containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
        used = {mount["name"] for one in containers for mount in one.get("volumeMounts") or ()}
        volumes = [volume for volume in spec.get("volumes") or () if volume["name"] in used]
        return {volume["name"]: self._one(volume) for volume in volumes}

    def _one(self, volume: Json) -> Path:
        directory = self._directory / str(volume["name"])
        if "hostPath" in volume:
            return _host_path(volume["hostPath"], volume["name"])
        if "emptyDir" in volume:
            directory.mkdir(parents=True, exist_ok=True)
            os.chown(directory, -1, -1 if self._group is None else int(self._group))
            directory.chmod(0o777 if self._group is None else 0o2777)
            return directory
        if "secret" in volume:
            return self._files(directory, kinds.SECRETS, volume["secret"]["secretName"], volume["secret"])
        if "configMap" in volume:
            return self._files(directory, kinds.CONFIGMAPS, volume["configMap"]["name"], volume["configMap"])
        source = ", ".join(name for name in volume if name != "name")
        raise MountError(
            f'MountVolume.SetUp failed for volume "{volume["name"]}": unsupported volume type {source}'
        )

    def _files(self, directory: Path, kind: Kind, name: str, source: Json) -> Path:
        data = environment.data_of(self._store, kind, self._pod["metadata"]["namespace"], name)
        if data is None and not source.get("optional"):
            why = f'{kind.singular} "{name}" not found'
            raise MountError(f'MountVolume.SetUp failed for volume "{directory.name}" : {why}')
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        for path, mode, content in _projected(data or {}, source, name):
            self._write(directory, path, mode, content)
        self._give_to_group(directory, 0o2775)
        return directory

    def _write(self, directory: Path, path: str, mode: int, content: bytes) -> None:
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)
        self._give_to_group(target, mode | 0o440)

    def _give_to_group(self, path: Path, mode: int) -> None:
        if self._group is not None:
            os.chown(path, -1, int(self._group))
            path.chmod(mode)
        elif path.is_dir():
            path.chmod(0o755)


def _projected(data: dict[str, bytes], source: Json, name: str) -> Iterable[tuple[str, int, bytes]]:
    """Path, mode and content of every file: all keys, or those that `items` names."""
    default = int(source.get("defaultMode", 0o644))
    items = source.get("items")
    if items is None:
        return [(key, default, content) for key, content in data.items()]
    missing = [item["key"] for item in items if item["key"] not in data]
    if missing and not source.get("optional"):
        raise MountError(f"references non-existent key in {name}: {', '.join(missing)}")
    wanted = [item for item in items if item["key"] in data]
    return [(item["path"], int(item.get("mode", default)), data[item["key"]]) for item in wanted]


def _host_path(source: Json, name: str) -> Path:
    path, kind = Path(source["path"]), source.get("type") or ""
    if kind in ("", "DirectoryOrCreate") and not path.exists():
        path.mkdir(parents=True, exist_ok=True)
    if kind == "FileOrCreate" and not path.exists():
        path.touch(0o644)
    test = _TYPE_TESTS.get(kind)
    if test is None or not test(path):
        why = f"hostPath type check failed: {path} is not a {kind.lower()}"
        raise MountError(f'MountVolume.SetUp failed for volume "{name}" : {why}')
    return path


def mounts_of(container: Json, sources: dict[str, Path]) -> list[Mount]:
    """The bind mounts of one container."""
    found = []
    for mount in container.get("volumeMounts") or ():
        source = sources[mount["name"]]
        if mount.get("subPath"):
            where = f'volumeMount "{mount["name"]}" of container "{container["name"]}"'
            source = _sub_path(source.resolve(), mount["subPath"], where)
        found.append(Mount(str(source), os.path.normpath(mount["mountPath"]), bool(mount.get("readOnly"))))
    return found


def _sub_path(base: Path, inside: str, where: str) -> Path:
    """A folder that is missing is made as kubelet does: root's, with the volume's mode."""
    path = (base / inside).resolve()
    if not path.is_relative_to(base):
        raise MountError(f"failed to prepare subPath for {where}")
    missing = [one for one in (path, *path.parents) if not one.exists()]
    try:
        for folder in reversed(missing):
            folder.mkdir()
            folder.chmod(base.stat().st_mode & 0o7777)
    except OSError as error:
        raise MountError(f"failed to create subPath directory for {where}") from error
    return path
