"""Applies a script's #K8S_ directives to its pods.

The site decides about security, resources and placement; a script may only add what concerns its own pods.
Only folders within the site's shared mounts can be mounted. A kubelet follows a symbolic link in a hostPath
anywhere, but not out of a volume in a subPath, so a folder is mounted as a subPath of its shared mount.
"""

from __future__ import annotations

import os
from typing import Any

from penstock import errors
from penstock.model.jobspec import Mount, PodSpec
from penstock.render import workdirs

Manifest = dict[str, Any]
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # where every program expects it


def apply(manifest: Manifest, asked: PodSpec, *, shared_mounts: tuple[str, ...]) -> Manifest:
    """The pod with what its script asked for. UsageError if that is not allowed."""
    spec = manifest["spec"]
    (container,) = spec["containers"]
    for mount in asked.mounts:
        _add_mount(container, mount, shared_mounts)
    if asked.shm_mib:
        memory = {"medium": "Memory", "sizeLimit": f"{asked.shm_mib}Mi"}
        spec["volumes"].append({"name": "shm", "emptyDir": memory})
        container["volumeMounts"].append({"name": "shm", "mountPath": SHARED_MEMORY})
    if asked.node_selector:
        spec["nodeSelector"] = _selector(spec.get("nodeSelector", {}), asked.node_selector)
    if asked.tolerations:
        spec["tolerations"] = [*spec.get("tolerations", ()), *map(_toleration, asked.tolerations)]
    if asked.pull_secrets:
        known = spec.get("imagePullSecrets", [])
        spec["imagePullSecrets"] = [*known, *({"name": name} for name in asked.pull_secrets)]
    if asked.priority_class:
        spec["priorityClassName"] = _priority(spec.get("priorityClassName", ""), asked.priority_class)
    return manifest


def _selector(sites: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    """Merged. A label of the site's selects the partition's or GPU type's nodes and cannot be overridden."""
    for name in sites.keys() & own.keys():
        if sites[name] != own[name]:
            raise errors.UsageError(
                f"#K8S_NODE_SELECTOR={name}={own[name]}: this job's nodes have {sites[name]!r} there"
            )
    return sites | own


def _priority(sites: str, own: str) -> str:
    """The class of the job's QOS or partition, if there is one, because it decides about preemption."""
    if sites and sites != own:
        raise errors.UsageError(f"#K8S_PRIORITY_CLASS={own}: this job's pods have the class {sites!r}")
    return own


def literally(text: str) -> str:
    """Escape for fields in which a kubelet expands `$(NAME)`."""
    return text.replace("$", "$$")


def _add_mount(container: Manifest, mount: Mount, shared: tuple[str, ...]) -> None:
    found = [
        (len(root), number)
        for number, root in enumerate(shared)
        if workdirs.lies_in(os.fsencode(mount.source), (root,))
    ]
    if not found or ".." in mount.source.split("/"):
        raise errors.UsageError(
            f"#K8S_MOUNT={mount.source}: only folders under {', '.join(shared)} can be mounted"
        )
    length, number = max(found)
    inside = mount.source[length:].strip("/")
    container["volumeMounts"].append(
        {"name": f"shared-{number}", "mountPath": mount.target, "readOnly": mount.read_only}
        | ({"subPath": inside} if inside else {})
    )


def _toleration(one: Any) -> Manifest:
    found = {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect}
    return {name: value for name, value in found.items() if value}
