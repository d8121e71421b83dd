"""What the API server fills in before it stores an object, as far as our clients can see a difference."""

from __future__ import annotations

import base64
from typing import Final

from penstock.devcluster import kinds, quantities, statuses
from penstock.devcluster.kinds import Kind
from penstock.devcluster.statuses import Json
from penstock.devcluster.store import Store

_POD_SPEC: Final[Json] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "serviceAccountName": "default",
    "serviceAccount": "default",
}
_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def apply(kind: Kind, obj: Json, store: Store) -> None:
    """Fill in a new object."""
    obj.update(apiVersion=kind.api_version, kind=kind.kind)
    convert(kind, obj)
    if kind is kinds.PODS:
        _pod(obj, store)
    elif kind is kinds.NAMESPACES:
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"].get(
            "name", ""
        )
    elif kind is kinds.NODES:
        obj.setdefault("spec", {})
        obj.setdefault("status", {})
    elif kind is kinds.DEFINITIONS:
        obj["status"] = {
            "conditions": [{"type": name, "status": "True"} for name in ("NamesAccepted", "Established")]
        }
    elif "status" in kind.subresources and kind.builtin:
        obj["status"] = {}


def convert(kind: Kind, obj: Json) -> None:
    """Write-only fields become what is stored; also done at updates."""
    if kind is kinds.SECRETS:
        obj.setdefault("type", "Opaque")
        plain = obj.pop("stringData", None) or {}
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in plain.items()}
        if encoded:
            obj["data"] = {**(obj.get("data") or {}), **encoded}


def _pod(obj: Json, store: Store) -> None:
    spec = obj.setdefault("spec", {})
    if not isinstance(spec, dict):
        raise statuses.bad_request("spec must be an object")
    for field, value in _POD_SPEC.items():
        if spec.get(field) is None:
            spec[field] = value
    spec.setdefault("securityContext", {})
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        _container(container)
    _priority(obj, spec, store)
    obj["status"] = {"phase": "Pending", "qosClass": _quality(spec.get("containers") or [])}


def _container(container: Json) -> None:
    tag = str(container.get("image", "")).rpartition("/")[2].partition(":")[2]
    container.setdefault("imagePullPolicy", "Always" if tag in ("", "latest") else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    for amounts in (resources.get("requests"), resources.get("limits")):
        for name, amount in (amounts or {}).items():
            amounts[name] = quantities.canonical(amount)
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _priority(obj: Json, spec: Json, store: Store) -> None:
    name = spec.get("priorityClassName")
    if not name:
        spec.setdefault("priority", 0)
        return
    entry = store.get(kinds.PRIORITY_CLASSES, "", name)
    if entry is None and name not in _SYSTEM_PRIORITIES:
        pod_name = obj["metadata"].get("name", "")
        raise statuses.forbidden(kinds.PODS, pod_name, f"no PriorityClass with name {name} was found")
    spec["priority"] = entry.obj["value"] if entry else _SYSTEM_PRIORITIES[name]


def _quality(containers: list[Json]) -> str:
    """The quality of service class, from which the kernel's and the kubelet's victims are chosen."""
    resources = [container["resources"] for container in containers]
    if not any(one.get("requests") or one.get("limits") for one in resources):
        return "BestEffort"
    for one in resources:
        limits, requests = one.get("limits") or {}, one.get("requests") or {}
        if any(limits.get(name) is None or limits[name] != requests.get(name) for name in ("cpu", "memory")):
            return "Burstable"
    return "Guaranteed"
