"""What a script's #K8S_ directives change about its pods.

The site decides about security, resources and placement; the script may add what concerns itself alone.
Folders can be mounted only from within the site's shared mounts: anything else of the node is nobody's
business. A kubelet follows a symbolic link in a hostPath to wherever it leads, but not out of a volume in a
subPath; so a folder is mounted as a subPath of its shared mount. It is named as a volume, too,
so that its absence is told; a real kubelet does not look at that one and makes an empty folder, as root.
"""

from __future__ import annotations

from typing import Any

from penstock import errors
from penstock.model.jobspec import Mount, PodSpec

Manifest = dict[str, Any]
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # where every program expects it


def apply(manifest: Manifest, asked: PodSpec, *, shared_mounts: tuple[str, ...]) -> Manifest:
    """The pod with what its script asked for; UsageError when it may not have that."""
    spec = manifest["spec"]
    (container,) = spec["containers"]
    for number, mount in enumerate(asked.mounts):
        _add_mount(spec, container, f"mount-{number}", mount, shared_mounts)
    if asked.shm_mib:
        memory = {"medium": "Memory", "sizeLimit": f"{asked.shm_mib}Mi"}
        spec["volumes"].append({"name": "shm", "emptyDir": memory})
        container["volumeMounts"].append({"name": "shm", "mountPath": SHARED_MEMORY})
    if asked.node_selector:
        spec["nodeSelector"] = spec.get("nodeSelector", {}) | asked.node_selector
    if asked.tolerations:
        spec["tolerations"] = [*spec.get("tolerations", ()), *map(_toleration, asked.tolerations)]
    if asked.pull_secrets:
        known = spec.get("imagePullSecrets", [])
        spec["imagePullSecrets"] = [*known, *({"name": name} for name in asked.pull_secrets)]
    if asked.priority_class:
        spec["priorityClassName"] = asked.priority_class
    return manifest


def _add_mount(spec: Manifest, container: Manifest, name: str, mount: Mount, shared: tuple[str, ...]) -> None:
    found = [(len(root), number) for number, root in enumerate(shared) if _lies_in(mount.source, root)]
    if not found or ".." in mount.source.split("/"):
        raise errors.UsageError(
            f"#K8S_MOUNT={mount.source}: only folders under {', '.join(shared)} can be mounted"
        )
    length, number = max(found)
    inside = mount.source[length:].strip("/")
    spec["volumes"].append({"name": name, "hostPath": {"path": mount.source, "type": "Directory"}})
    container["volumeMounts"].append(
        {"name": f"shared-{number}", "mountPath": mount.target, "readOnly": mount.read_only}
        | ({"subPath": inside} if inside else {})
    )


def _lies_in(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")


def _toleration(one: Any) -> Manifest:
    found = {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect}
    return {name: value for name, value in found.items() if value}
