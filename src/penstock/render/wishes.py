"""What #K8S_ directives change in a pod: pure, from one manifest to the next."""

from __future__ import annotations

import copy
from typing import Any, Final

from penstock.model.jobspec import PodSpec, Toleration

Manifest = dict[str, Any]

BRIDGE_HONOURS: Final = ("image",)
"""Fields of PodSpec that the bridge acts on; `explain` says of the others that they are only checked."""


def apply(pod: Manifest, wish: PodSpec) -> Manifest:
    """The pod with everything the directives ask for."""
    changed = copy.deepcopy(pod)
    spec = changed["spec"]
    container = spec["containers"][0]
    if wish.image:
        container["image"] = wish.image
    if wish.workdir:
        container["workingDir"] = wish.workdir
    if wish.command:
        container["command"] = list(wish.command)
    elif wish.own_entrypoint:
        container.pop("command", None)
    if wish.environment:
        container["env"] = [{"name": name, "value": value} for name, value in wish.environment.items()]
    _volumes(spec, container, wish)
    _placement(spec, wish)
    return changed


def _volumes(spec: Manifest, container: Manifest, wish: PodSpec) -> None:
    volumes, mounts = spec.setdefault("volumes", []), container.setdefault("volumeMounts", [])
    for number, mount in enumerate(wish.mounts):
        name = f"wish-{number}"
        volumes.append({"name": name, "hostPath": {"path": mount.source, "type": "Directory"}})
        mounts.append({"name": name, "mountPath": mount.target, "readOnly": mount.read_only})
    if wish.shm_mib:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{wish.shm_mib}Mi"}})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - a path in the pod


def _placement(spec: Manifest, wish: PodSpec) -> None:
    if wish.node_selector:
        spec["nodeSelector"] = dict(wish.node_selector)
    if wish.tolerations:
        spec["tolerations"] = [_toleration(item) for item in wish.tolerations]
    if wish.priority_class:
        spec["priorityClassName"] = wish.priority_class
    if wish.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in wish.pull_secrets]


def _toleration(item: Toleration) -> Manifest:
    words = {"key": item.key, "operator": item.operator, "value": item.value, "effect": item.effect}
    return {name: word for name, word in words.items() if word}
