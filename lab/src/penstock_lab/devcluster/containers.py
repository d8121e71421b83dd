"""The description with which podinit starts a container: command, environment, user, volumes.

Derived as kubelet and container runtime do. The image is this host's userland.
"""

from __future__ import annotations

import base64
import os
import pwd
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from penstock_lab.devcluster import kindtable, podnetwork
from penstock_lab.devcluster.kindtable import Kind
from penstock_lab.devcluster.objectstore import Store
from penstock_lab.devcluster.podprocesses import StartError
from penstock_lab.devcluster.statuses import Json

_SERVICE: Final = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "KUBERNETES_SERVICE_PORT": "443",
    "KUBERNETES_SERVICE_PORT_HTTPS": "443",
    "KUBERNETES_PORT": "tcp://10.96.0.1:443",
    "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443",
    "KUBERNETES_PORT_443_TCP_PROTO": "tcp",
    "KUBERNETES_PORT_443_TCP_PORT": "443",
    "KUBERNETES_PORT_443_TCP_ADDR": "10.96.0.1",
}
"""Set by kubelets regardless of enableServiceLinks; nothing listens there."""
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BARE_IMAGE: Final = ("lab/pause:1", "/pause")  # the only image without the host's files, and its program
_HOST_PATHS: Final[dict[str, Callable[[Path], bool]]] = {
    "Directory": Path.is_dir,
    "DirectoryOrCreate": Path.is_dir,
    "Socket": Path.is_socket,
    "File": Path.is_file,
    "FileOrCreate": Path.is_file,
    "": lambda path: True,
}


class MountError(Exception):
    """A volume is not available (yet): the pod stays ContainerCreating, and is tried again."""


class ConfigError(Exception):
    """A reference of the container is missing (yet): it waits with this reason."""

    def __init__(self, message: str, *, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(message)
        self.reason = reason


def _data(store: Store, kind: Kind, namespace: str, source: Json) -> dict[str, bytes]:
    """Contents of a Secret or ConfigMap; empty if it is missing and optional."""
    name = source.get("secretName") or source["name"]
    entry = store.get(kind, namespace, name)
    if entry is None:
        if source.get("optional"):
            return {}
        raise LookupError(f'{kind.kind.lower()} "{name}" not found')
    plain = entry.obj.get("data") or {} if kind is kindtable.CONFIGMAPS else {}
    encoded = entry.obj.get("data" if kind is kindtable.SECRETS else "binaryData") or {}
    decoded = {key: base64.b64decode(value) for key, value in encoded.items()}
    return {**decoded, **{key: value.encode() for key, value in plain.items()}}


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) if NAME is known; $$ is an escaped dollar sign."""

    def replace(match: re.Match[str]) -> str:
        return "$" if match[1] is None else variables.get(match[1], match[0])

    return re.sub(r"\$(?:\$|\(([^()]*)\))", replace, text)


def environment(pod: Json, container: Json, store: Store, home: str) -> dict[str, str]:
    """Variables of the image and the cluster, then the pod's, in order."""
    namespace = pod["metadata"]["namespace"]
    variables = {"PATH": _PATH, "HOSTNAME": podnetwork.hostname(pod), "HOME": home, **_SERVICE}
    for source in container.get("envFrom") or ():
        for field, kind in (("secretRef", kindtable.SECRETS), ("configMapRef", kindtable.CONFIGMAPS)):
            found = _data(store, kind, namespace, source[field]) if field in source else {}
            for key, content in found.items():
                variables[source.get("prefix", "") + key] = content.decode(errors="surrogateescape")
    for item in container.get("env") or ():
        source = item.get("valueFrom")
        value = _referred(pod, source, store) if source else expand(str(item.get("value") or ""), variables)
        if value is not None:
            variables[item["name"]] = value
    return variables


def _referred(pod: Json, source: Json, store: Store) -> str | None:
    """The value of a valueFrom; None if it is missing and optional."""
    for field, kind in (("secretKeyRef", kindtable.SECRETS), ("configMapKeyRef", kindtable.CONFIGMAPS)):
        if field in source:
            key, data = source[field]["key"], _data(store, kind, pod["metadata"]["namespace"], source[field])
            if key not in data and not source[field].get("optional"):
                raise LookupError(f"couldn't find key {key} in {kind.kind} {source[field]['name']}")
            return data[key].decode(errors="surrogateescape") if key in data else None
    path = (source.get("fieldRef") or {}).get("fieldPath", "")
    section, _, name = path.partition(".")
    if section not in ("metadata", "spec", "status") or not isinstance(pod[section].get(name), str):
        raise LookupError(f"unsupported source of a variable: {path or ', '.join(source)}")
    return str(pod[section][name])


def user_of(context: Json) -> tuple[int, int, list[int], str]:
    """uid, gid, groups and home, from the security context, else from the host's passwd."""
    uid = int(context.get("runAsUser", 0))
    if context.get("runAsNonRoot") and uid == 0:
        raise LookupError("container has runAsNonRoot and image will run as root")
    try:
        known = pwd.getpwuid(uid)
        gid, home = int(context.get("runAsGroup", known.pw_gid)), known.pw_dir
        groups = set(os.getgrouplist(known.pw_name, gid))
    except KeyError:
        gid, home = int(context.get("runAsGroup", 0)), "/"
        groups = {gid}
    if context.get("supplementalGroupsPolicy") == "Strict":
        groups = {gid}
    more = (
        *(context.get("supplementalGroups") or ()),
        *([context["fsGroup"]] if "fsGroup" in context else []),
    )
    return uid, gid, sorted(groups.union(map(int, more))), home


def describe(pod: Json, container: Json, volumes: dict[str, Path], directory: Path, store: Store) -> Json:
    """The description; raises ConfigError if a reference is missing."""
    spec = pod["spec"]
    context = {**(spec.get("securityContext") or {}), **(container.get("securityContext") or {})}
    try:
        uid, gid, groups, home = user_of(context)
        variables = environment(pod, container, store, home)
    except LookupError as error:
        raise ConfigError(str(error.args[0])) from error
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    argv = [expand(str(word), variables) for word in words]
    if not argv:
        why = "no command specified: dev cluster images have no entrypoint"
        raise ConfigError(why, reason="CreateContainerError")
    if container["image"] == _BARE_IMAGE[0] and argv[0] != _BARE_IMAGE[1]:
        raise StartError(f'exec: "{argv[0]}": stat {argv[0]}: no such file or directory')
    (directory / "root").mkdir(parents=True, exist_ok=True)
    return {
        "argv": argv,
        "env": variables,
        "cwd": container.get("workingDir") or "/",
        "uid": uid,
        "gid": gid,
        "groups": groups,
        "cgroup": "",
        "hostname": podnetwork.hostname(pod),
        "root": str(directory / "root"),
        "readonly_root": bool(context.get("readOnlyRootFilesystem")),
        "mounts": [_mount(mount, volumes, container) for mount in container.get("volumeMounts") or ()],
    }


def _mount(mount: Json, volumes: dict[str, Path], container: Json) -> tuple[str, str, bool]:
    """Source, target and whether read-only; a missing subPath is created by root, with the volume's mode."""
    source = volumes[mount["name"]]
    if mount.get("subPath"):
        where = f'volumeMount "{mount["name"]}" of container "{container["name"]}"'
        base, source = source.resolve(), (source / mount["subPath"]).resolve()
        if not source.is_relative_to(base):
            raise ConfigError(f"failed to prepare subPath for {where}")
        try:
            for folder in reversed([one for one in (source, *source.parents) if not one.exists()]):
                folder.mkdir()
                folder.chmod(base.stat().st_mode & 0o7777)
        except OSError as error:
            raise ConfigError(f"failed to create subPath directory for {where}") from error
    return str(source), os.path.normpath(mount["mountPath"]), bool(mount.get("readOnly"))


def prepare(pod: Json, directory: Path, store: Store) -> dict[str, Path]:
    """Host paths of the volumes that containers mount; raises MountError."""
    found, spec = {}, pod["spec"]
    every = (*(spec.get("initContainers") or ()), *spec["containers"])
    used = {mount["name"] for container in every for mount in container.get("volumeMounts") or ()}
    for volume in [one for one in spec.get("volumes") or () if one["name"] in used]:
        try:
            found[volume["name"]] = _volume(pod, volume, directory / volume["name"], store)
        except LookupError as error:
            why = f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error.args[0]}'
            raise MountError(why) from error
    return found


def _volume(pod: Json, volume: Json, directory: Path, store: Store) -> Path:
    group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    if "hostPath" in volume:
        return _host_path(Path(volume["hostPath"]["path"]), volume["hostPath"].get("type") or "")
    if "emptyDir" in volume:
        directory.mkdir(parents=True, exist_ok=True)
        _give(directory, 0o777 if group is None else 0o2777, group)
        return directory
    for field, kind in (("secret", kindtable.SECRETS), ("configMap", kindtable.CONFIGMAPS)):
        if field in volume:
            data = _data(store, kind, pod["metadata"]["namespace"], volume[field])
            return _files(directory, data, volume[field], group)
    raise LookupError(f"unsupported volume type {', '.join(name for name in volume if name != 'name')}")


def _give(path: Path, mode: int, group: int | None) -> None:
    os.chown(path, -1, -1 if group is None else group)
    path.chmod(mode)


def _files(directory: Path, data: dict[str, bytes], source: Json, group: int | None) -> Path:
    """Write a file for every key, or for the `items`."""
    items = source.get("items") or [{"key": key, "path": key} for key in data]
    missing = [item["key"] for item in items if item["key"] not in data and not source.get("optional")]
    if missing:
        raise LookupError(f"references non-existent key: {', '.join(missing)}")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for item in items:
        path, mode = directory / item["path"], int(item.get("mode", source.get("defaultMode", 0o644)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.get(item["key"], b""))
        _give(path, mode if group is None else mode | 0o440, group)
    _give(directory, 0o755 if group is None else 0o2775, group)
    return directory


def _host_path(path: Path, kind: str) -> Path:
    if kind in ("", "DirectoryOrCreate") and not path.exists():
        path.mkdir(parents=True, exist_ok=True)
    if kind == "FileOrCreate" and not path.exists():
        path.touch(0o644)
    test = _HOST_PATHS.get(kind)
    if test is None or not test(path):
        raise LookupError(f"hostPath type check failed: {path} is not a {kind.lower()}")
    return path
