"""An existing cluster, given by its kubeconfig: the lab uses its nodes, and penstockd gets an account there.

The given kubeconfig is used to install a role, an account and its token, and by root's commands; penstockd
never gets it. Pods there cannot see this machine's files, so all output is fetched through the API.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import socket
from pathlib import Path
from typing import Any

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from penstock import errors
from penstock.kube import kinds, podview
from penstock.render import rbac
from penstock_lab import files, paths, spec
from penstock_lab.kubernetes import api, authority, bootstrap

log = logging.getLogger(__name__)

STEP = "cluster access"
MACHINE_ID = Path("/etc/machine-id")
IMAGE = "debian:stable-slim"
"""Any cluster with internet access can pull it; scripts choose another one with `#K8S_IMAGE`."""
TOKEN_SECONDS = 30 * 24 * 3600
UNUSABLE = ("NoSchedule", "NoExecute")


def members(config: Path) -> tuple[spec.Member, ...]:
    """The cluster's nodes that take ordinary pods, with their allocatable amounts."""
    listed = api.cluster(config).items(kinds.NODES, dict)
    found = tuple(_member(node) for node in listed if is_usable(node))
    if not found:
        raise errors.UsageError(f"the cluster of {config} has no node that is Ready and accepts pods")
    return found


def is_usable(node: dict[str, Any]) -> bool:
    """Ready, not cordoned, and without a NoSchedule or NoExecute taint."""
    taints = {taint["effect"] for taint in node["spec"].get("taints", ())}
    closed = node["spec"].get("unschedulable", False) or taints & set(UNUSABLE)
    return not closed and not api.ready_complaint(node)


def _member(node: dict[str, Any]) -> spec.Member:
    amount = podview.amount(node["status"]["allocatable"])
    return spec.Member(
        name=node["metadata"]["name"],
        cpus=max(amount.millicpus // 1000, 1),
        memory_mb=amount.memory // 2**20,
        gpus=amount.gpus,
    )


def install(place: paths.LabPaths, lab: spec.LabSpec, *, penstockd_owner: files.Owner) -> str:
    """Install roles, accounts and kubeconfigs; a second run renews the tokens."""
    config = Path(lab.kubernetes)
    namespace = namespace_of(place, lab)
    api.cluster(config).apply(_named("Namespace", namespace))
    roles = {authority.PENSTOCKD: rbac.render_role(), authority.VIEWER: bootstrap.viewer_role()}
    for name, role in roles.items():
        role["metadata"]["name"] = f"{namespace}-{name}"  # the cluster may have one of the plain name
        _make_account(config, namespace, name, role)
    files.write(
        place.penstockd_kubeconfig,
        _kubeconfig(config, namespace, authority.PENSTOCKD),
        mode=0o600,
        owner=penstockd_owner,
    )
    files.write(place.viewer_kubeconfig, _kubeconfig(config, namespace, authority.VIEWER))
    user = _entry(config, "user", ("client-certificate", "client-key"))
    files.write(place.admin_kubeconfig, render_kubeconfig(config, user=user), mode=0o600)
    return f"{len(lab.members)} nodes"


def remove(place: paths.LabPaths, lab: spec.LabSpec) -> None:
    """Remove what install made; logs what is left if the cluster fails or refuses."""
    config, left = Path(lab.kubernetes), _made(place, lab)
    try:
        for name, manifest in tuple(left.items()):
            api.cluster(config).delete(manifest)
            del left[name]
    except (errors.KubeError, errors.UsageError) as error:
        log.warning(_LEFT, config, error.message, " ".join(left))


_LEFT = (
    "penstock: objects of the lab may remain in the cluster of %s: %s\n"
    "  Once it is reachable: kubectl delete %s, and look for pods of the lab's jobs."
)


def _made(place: paths.LabPaths, lab: spec.LabSpec) -> dict[str, dict[str, Any]]:
    """The objects that only this lab uses, by their kubectl names."""
    namespace = namespace_of(place, lab)
    names = [f"{namespace}-{name}" for name in (authority.PENSTOCKD, authority.VIEWER)]
    found = [_named(kind, name) for kind in ("ClusterRoleBinding", "ClusterRole") for name in names]
    found.append(_named("Namespace", namespace))
    return {f"{each['kind'].lower()}/{each['metadata']['name']}": each for each in found}


def _named(kind: str, name: str) -> dict[str, Any]:
    version = "v1" if kind == "Namespace" else "rbac.authorization.k8s.io/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


def namespace_of(place: paths.LabPaths, lab: spec.LabSpec) -> str:
    """The namespace of this lab's accounts, unique to lab and machine: several labs of one name may use the
    cluster, and each removes only its own.
    """
    digest = hashlib.sha256(f"{_machine()}:{place.directory}".encode()).hexdigest()[:8]
    return f"penstock-lab-{lab.name}-{digest}"


def _machine() -> str:
    try:
        return MACHINE_ID.read_text(encoding="ascii").strip() or socket.gethostname()
    except (OSError, UnicodeDecodeError):
        return socket.gethostname()


def _make_account(config: Path, namespace: str, name: str, role: dict[str, Any]) -> None:
    cluster = api.cluster(config)
    account = {"name": name, "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    cluster.apply(role)
    subject = rbac.service_account(name, namespace)
    binding = rbac.render_binding(subject, role=role["metadata"]["name"])
    binding["metadata"]["name"] = f"{namespace}-{name}"
    cluster.apply(binding)


def _kubeconfig(config: Path, namespace: str, name: str) -> bytes:
    token = api.token(config, namespace=namespace, account=name, seconds=TOKEN_SECONDS)
    return render_kubeconfig(config, user={"token": token})


def render_kubeconfig(config: Path, *, user: dict[str, Any]) -> bytes:
    """A self-contained kubeconfig of the same cluster for another user."""
    cluster = _entry(config, "cluster", ("certificate-authority",))
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "lab",
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def _entry(config: Path, kind: str, file_fields: tuple[str, ...]) -> dict[str, Any]:
    """The cluster or user of the current context, with referenced files embedded."""
    try:
        document = YAML(typ="safe", pure=True).load(config.read_text(encoding="utf-8"))
        contexts = {entry["name"]: entry["context"] for entry in document["contexts"]}
        wanted = contexts[document["current-context"]][kind]
        found = dict(next(entry[kind] for entry in document[f"{kind}s"] if entry["name"] == wanted))
        for field in file_fields:
            if field in found:
                content = (config.parent / found.pop(field)).read_bytes()
                found[f"{field}-data"] = base64.b64encode(content).decode()
    except (OSError, YAMLError, KeyError, TypeError, StopIteration) as error:
        raise errors.UsageError(f"{config} is not a usable kubeconfig: {error}") from error
    return found
