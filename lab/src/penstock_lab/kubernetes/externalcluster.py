"""A cluster that somebody else keeps: its nodes become the lab's, and penstockd gets an identity there.

The given kubeconfig is used to install the role, an account and its token, and for what root types; penstockd
itself never gets it. Files of this machine are not there, so pods see no shared folder and every byte of
output comes through the API.
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
"""Any cluster with a way out can pull it; another one is chosen by `#K8S_IMAGE`."""
TOKEN_SECONDS = 30 * 24 * 3600
UNUSABLE = ("NoSchedule", "NoExecute")


def members(config: Path) -> tuple[spec.Member, ...]:
    """The cluster's nodes that take ordinary pods, with what is left to give on each."""
    listed = api.cluster(config).items(kinds.NODES, dict)
    found = tuple(_member(node) for node in listed if is_usable(node))
    if not found:
        raise errors.UsageError(f"the cluster of {config} has no node that is Ready and takes pods")
    return found


def is_usable(node: dict[str, Any]) -> bool:
    """Ready, not cordoned, and without a taint that keeps pods away."""
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
    """Roles, accounts and kubeconfigs; done again, it renews the tokens."""
    config = Path(lab.kubernetes)
    namespace = namespace_of(place, lab)
    api.cluster(config).apply(_named("Namespace", namespace))
    roles = {authority.PENSTOCKD: rbac.render_role(), authority.VIEWER: bootstrap.viewer_role()}
    for name, role in roles.items():
        role["metadata"]["name"] = f"{namespace}-{name}"  # another one of that name may be there
        _make_account(config, namespace, name, role)
    files.write(
        place.penstockd_kubeconfig,
        _kubeconfig(config, namespace, authority.PENSTOCKD),
        mode=0o600,
        owner=penstockd_owner,
    )
    files.write(place.viewer_kubeconfig, _kubeconfig(config, namespace, authority.VIEWER))
    files.write(place.admin_kubeconfig, render_kubeconfig(config, user=_user(config)), mode=0o600)
    return f"{len(lab.members)} nodes"


def remove(place: paths.LabPaths, lab: spec.LabSpec) -> None:
    """Take back what install made; a cluster that does not answer or refuses keeps it, and that is said."""
    config, left = Path(lab.kubernetes), _made(place, lab)
    try:
        for name, manifest in tuple(left.items()):
            api.cluster(config).delete(manifest)
            del left[name]
    except (errors.KubeError, errors.UsageError) as error:
        log.warning(_LEFT, config, error.message, " ".join(left))


_LEFT = (
    "penstock: the cluster of %s may keep what the lab made there: %s\n"
    "  Should it come back: kubectl delete %s, and look for pods of the lab's jobs."
)


def _made(place: paths.LabPaths, lab: spec.LabSpec) -> dict[str, dict[str, Any]]:
    """What is this lab's alone, by kubectl's names for it."""
    namespace = namespace_of(place, lab)
    names = [f"{namespace}-{name}" for name in (authority.PENSTOCKD, authority.VIEWER)]
    found = [_named(kind, name) for kind in ("ClusterRoleBinding", "ClusterRole") for name in names]
    found.append(_named("Namespace", namespace))
    return {f"{each['kind'].lower()}/{each['metadata']['name']}": each for each in found}


def _named(kind: str, name: str) -> dict[str, Any]:
    version = "v1" if kind == "Namespace" else "rbac.authorization.k8s.io/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


def namespace_of(place: paths.LabPaths, lab: spec.LabSpec) -> str:
    """Where the accounts of this lab are: the cluster may be used by labs of the same name, also by those of
    other machines, and each removes its own only.
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
    """The same cluster for another user, in one file."""
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


def _user(config: Path) -> dict[str, Any]:
    return _entry(config, "user", ("client-certificate", "client-key"))


def _entry(config: Path, kind: str, file_fields: tuple[str, ...]) -> dict[str, Any]:
    """The cluster or user of the current context, with the content of the files it names."""
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
        raise errors.UsageError(f"{config} is not a kubeconfig that can be used: {error}") from error
    return found
