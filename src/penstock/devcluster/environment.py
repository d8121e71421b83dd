"""A container's command, environment and user, worked out as kubelet and the runtime do together."""

from __future__ import annotations

import base64
import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.devcluster import kinds
from penstock.devcluster.kinds import Kind
from penstock.devcluster.statuses import Json
from penstock.devcluster.store import Store

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
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
"""What a kubelet tells every container, whatever enableServiceLinks says; nothing answers there."""
BARE_IMAGE: Final = "lab/pause:1"  # the one image that has no files of the host, but a single program
BARE_PROGRAM: Final = "/pause"
_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^()]*)\))")


class ConfigError(Exception):
    """Something the container refers to is not there (yet): it waits with this reason."""

    def __init__(self, message: str, *, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class User:
    """Whom the container's processes run as."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


def expand(text: str, variables: Mapping[str, str]) -> str:
    """$(NAME) is replaced when NAME is known and left alone when not; $$ stands for a single dollar sign."""

    def replace(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(replace, text)


def data_of(store: Store, kind: Kind, namespace: str, name: str) -> dict[str, bytes] | None:
    """Contents of a Secret or ConfigMap, or None when there is none."""
    entry = store.get(kind, namespace, name)
    if entry is None:
        return None
    encoded = entry.obj.get("data" if kind is kinds.SECRETS else "binaryData") or {}
    found = {key: base64.b64decode(value) for key, value in encoded.items()}
    if kind is kinds.CONFIGMAPS:
        found.update({key: value.encode() for key, value in (entry.obj.get("data") or {}).items()})
    return found


class Environment:
    """Works out the variables of the containers of one pod."""

    def __init__(self, pod: Json, store: Store) -> None:
        self._pod = pod
        self._store = store
        self._namespace = pod["metadata"]["namespace"]

    def of(self, container: Json, user: User) -> dict[str, str]:
        """All variables of this container; nothing of the server's own environment is among them."""
        variables = {"PATH": DEFAULT_PATH, "HOSTNAME": self._pod["metadata"]["name"], "HOME": user.home}
        variables |= _SERVICE
        for source in container.get("envFrom") or ():
            variables.update(self._whole(source))
        for item in container.get("env") or ():
            value = self._from(item["valueFrom"]) if item.get("valueFrom") else str(item.get("value") or "")
            if value is not None:
                variables[item["name"]] = value if item.get("valueFrom") else expand(value, variables)
        return variables

    def _whole(self, source: Json) -> dict[str, str]:
        kind, reference = _referred(source, "secretRef", "configMapRef")
        found = data_of(self._store, kind, self._namespace, reference["name"])
        if found is None and not reference.get("optional"):
            raise ConfigError(f'{kind.singular} "{reference["name"]}" not found')
        prefix = source.get("prefix", "")
        return {prefix + key: value.decode(errors="surrogateescape") for key, value in (found or {}).items()}

    def _from(self, source: Json) -> str | None:
        if "fieldRef" in source:
            return self._field(source["fieldRef"]["fieldPath"])
        kind, reference = _referred(source, "secretKeyRef", "configMapKeyRef")
        found = data_of(self._store, kind, self._namespace, reference["name"])
        if found is not None and reference["key"] in found:
            return found[reference["key"]].decode(errors="surrogateescape")
        if reference.get("optional"):
            return None
        if found is None:
            raise ConfigError(f'{kind.singular} "{reference["name"]}" not found')
        where = f"{kind.kind} {self._namespace}/{reference['name']}"
        raise ConfigError(f"couldn't find key {reference['key']} in {where}")

    def _field(self, path: str) -> str:
        metadata, spec = self._pod["metadata"], self._pod["spec"]
        known = {
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata["namespace"],
            "metadata.uid": metadata["uid"],
            "spec.nodeName": spec.get("nodeName", ""),
            "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
            "status.podIP": "127.0.0.1",
            "status.podIPs": "127.0.0.1",
            "status.hostIP": "127.0.0.1",
        }
        match = re.fullmatch(r"metadata\.(labels|annotations)\['([^']*)'\]", path)
        if match:
            return str((metadata.get(match[1]) or {}).get(match[2], ""))
        if path not in known:
            raise ConfigError(f"unsupported fieldPath: {path}")
        return str(known[path])


def _referred(source: Json, secret: str, config_map: str) -> tuple[Kind, Json]:
    if secret in source:
        return kinds.SECRETS, source[secret]
    if config_map in source:
        return kinds.CONFIGMAPS, source[config_map]
    raise ConfigError(f"unsupported source of variables: {', '.join(source)}")


def user_of(pod: Json, container: Json) -> User:
    """The container's context wins over the pod's; what neither says comes from the host's passwd."""
    own = {**(pod["spec"].get("securityContext") or {}), **(container.get("securityContext") or {})}
    uid = int(own.get("runAsUser", 0))
    if own.get("runAsNonRoot") and uid == 0:
        raise ConfigError("container has runAsNonRoot and image will run as root")
    try:
        known = pwd.getpwuid(uid)
        gid, home = int(own.get("runAsGroup", known.pw_gid)), known.pw_dir
        groups = set(os.getgrouplist(known.pw_name, gid))
    except KeyError:
        gid, home = int(own.get("runAsGroup", 0)), "/"
        groups = {gid}
    groups.update(int(group) for group in own.get("supplementalGroups") or ())
    groups.update([int(own["fsGroup"])] if "fsGroup" in own else [])
    return User(uid, gid, tuple(sorted(groups)), home)


def command_of(container: Json, variables: Mapping[str, str]) -> list[str]:
    """Command and arguments; our one image has no entrypoint, so arguments alone are the command."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not words:
        raise ConfigError(
            "no command specified: dev cluster images have no entrypoint", reason="CreateContainerError"
        )
    return [expand(str(word), variables) for word in words]
