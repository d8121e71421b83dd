"""Defaults and validation of objects before they are stored, as far as clients rely on them."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Final

from penstock_lab.devcluster import kindtable, quotas, statuses
from penstock_lab.devcluster.kindtable import Kind
from penstock_lab.devcluster.objectstore import Store
from penstock_lab.devcluster.statuses import Json

_POD_SPEC: Final[Json] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "serviceAccountName": "default",
    "serviceAccount": "default",
}
_CONTAINER: Final[Json] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(
    r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
_ROLE: Final = re.compile(r"(?!\.{1,2}$)[^/%]+")
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_RULE: Final = "a lowercase RFC 1123 name must consist of lower case alphanumeric characters or '-'"
_MUTABLE_SPEC: Final = ("activeDeadlineSeconds", "tolerations")
_Problems = Iterator[tuple[str, str]]  # field and problem


def fill_in(kind: Kind, obj: Json, store: Store) -> None:
    obj.update(apiVersion=kind.api_version, kind=kind.kind)
    convert(kind, obj)
    if kind is kindtable.PODS:
        _fill_pod(obj, store)
    elif kind is kindtable.NAMESPACES:
        obj.update(spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"})
        labels = obj["metadata"].setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")
    elif kind is kindtable.DEFINITIONS:
        conditions = [{"type": name, "status": "True"} for name in ("NamesAccepted", "Established")]
        obj["status"] = {"conditions": conditions}
    elif kind is kindtable.NODES:
        obj.update(spec=obj.get("spec") or {}, status=obj.get("status") or {})
    elif "status" in kind.subresources and kind.builtin:
        obj["status"] = {}


def convert(kind: Kind, obj: Json) -> None:
    """Convert write-only fields; also applied to updates."""
    if kind is kindtable.SECRETS:
        obj.setdefault("type", "Opaque")
        plain = obj.pop("stringData", None) or {}
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in plain.items()}
        if encoded:
            obj["data"] = {**(obj.get("data") or {}), **encoded}


def _fill_pod(obj: Json, store: Store) -> None:
    spec = obj.setdefault("spec", {})
    spec.update({field: value for field, value in _POD_SPEC.items() if spec.get(field) is None})
    spec.setdefault("securityContext", {})
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        _fill_container(container)
    name, value = spec.get("priorityClassName"), spec.get("priority", 0)
    if name:
        entry = store.get(kindtable.PRIORITIES, "", name)
        value = entry.obj["value"] if entry else _SYSTEM_PRIORITIES.get(name)
    if value is None:
        why = f"no PriorityClass with name {name} was found"
        raise statuses.forbidden(kindtable.PODS, obj["metadata"].get("name", ""), why)
    spec["priority"] = value
    obj["status"] = {"phase": "Pending"}


def _fill_container(container: Json) -> None:
    tag = str(container.get("image", "")).rpartition("/")[2].partition(":")[2]
    policy = {"imagePullPolicy": "Always" if tag in ("", "latest") else "IfNotPresent"}
    for field, value in {**policy, **_CONTAINER}.items():
        container.setdefault(field, value)
    said = container["resources"] = {
        which: {name: quotas.canonical(amount) for name, amount in (amounts or {}).items()}
        for which, amounts in container["resources"].items()
        if which in ("limits", "requests")
    }
    if said.get("limits"):
        said["requests"] = {**said["limits"], **said.get("requests", {})}


def check(kind: Kind, obj: Json) -> None:
    name = str(obj["metadata"].get("name") or "")
    if not name:
        raise statuses.invalid(kind, "", "metadata.name", "Required value: name or generateName is required")
    pattern = (
        _LABEL if kind is kindtable.NAMESPACES else _ROLE if kind.group.startswith("rbac.") else _SUBDOMAIN
    )
    if not pattern.fullmatch(name):
        raise statuses.invalid(kind, name, "metadata.name", f'Invalid value: "{name}": {_RULE}')
    _check_labels(kind, name, obj["metadata"])
    problems = {kindtable.PODS: _pod_problems, kindtable.DEFINITIONS: _definition_problems}.get(kind)
    for field, why in problems(obj) if problems else ():
        raise statuses.invalid(kind, name, field, why)


def _check_labels(kind: Kind, name: str, metadata: Json) -> None:
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    for key, value in (*labels.items(), *notes.items()):
        if not isinstance(value, str):
            raise statuses.bad_request(f"metadata: {key}: a string was expected, got {value!r}")
    for key, value in labels.items():
        if not (_KEY.fullmatch(key) and _VALUE.fullmatch(value)):
            why = f'Invalid value: "{key}={value}": at most 63 characters: alphanumeric, "-", "_" or "."'
            raise statuses.invalid(kind, name, "metadata.labels", why)


def _definition_problems(obj: Json) -> _Problems:
    spec = obj.get("spec") or {}
    names = spec.get("names") or {}
    if not (names.get("plural") and names.get("kind") and spec.get("group") and spec.get("versions")):
        yield "spec", "Required value: group, versions, names.plural, names.kind"
    elif obj["metadata"]["name"] != f"{names['plural']}.{spec['group']}":
        yield "metadata.name", 'Invalid value: must be spec.names.plural+"."+spec.group'


def _pod_problems(obj: Json) -> _Problems:
    spec = obj["spec"]
    if not spec.get("containers"):
        yield "spec.containers", "Required value"
    policy = spec["restartPolicy"]
    if policy not in ("Always", "OnFailure", "Never"):
        why = f'Unsupported value: "{policy}": supported values: "Always", "OnFailure", "Never"'
        yield "spec.restartPolicy", why
    for field in ("volumes", "initContainers", "containers"):
        seen: set[str] = set()
        for index, item in enumerate(spec.get(field) or ()):
            yield from _name_problems(item.get("name"), f"spec.{field}[{index}].name", seen)
    volumes = {volume["name"] for volume in spec.get("volumes") or ()}
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            for place, why in _container_problems(container, volumes):
                yield f"spec.{field}[{index}].{place}", why


def _name_problems(name: str | None, field: str, seen: set[str]) -> _Problems:
    if not name:
        yield field, "Required value"
    elif not _LABEL.fullmatch(name):
        yield field, f'Invalid value: "{name}": {_RULE}'
    elif name in seen:
        yield field, f'Duplicate value: "{name}"'
    seen.add(name or "")


def _container_problems(container: Json, volumes: set[str]) -> _Problems:
    if not container.get("image"):
        yield "image", "Required value"
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes or not mount.get("mountPath"):
            yield f"volumeMounts[{index}].name", f'Not found: "{mount.get("name")}"'
    limits = container["resources"].get("limits") or {}
    for resource, wanted in (container["resources"].get("requests") or {}).items():
        if resource in limits and quotas.parse(wanted) > quotas.parse(limits[resource]):
            why = f'Invalid value: "{wanted}": must be less than or equal to {resource} limit'
            yield "resources.requests", why


def _frozen(spec: Json) -> Json:
    """The immutable part of a pod's spec: all but images and a few fields."""
    kept = {field: value for field, value in spec.items() if field not in _MUTABLE_SPEC}
    for field in ("initContainers", "containers"):
        kept[field] = [{**one, "image": ""} for one in spec.get(field) or ()]
    return kept


def check_update(kind: Kind, old: Json, obj: Json) -> None:
    name = str(old["metadata"]["name"])
    _check_labels(kind, name, obj["metadata"])
    if kind is kindtable.PODS and _frozen(obj.get("spec") or {}) != _frozen(old["spec"]):
        why = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, "
            "`spec.activeDeadlineSeconds` and `spec.tolerations`"
        )
        raise statuses.invalid(kind, name, "spec", why)
    changed = any(obj.get(field) != old.get(field) for field in ("data", "binaryData", "immutable"))
    if old.get("immutable") and changed:
        raise statuses.invalid(kind, name, "data", "Forbidden: field is immutable when `immutable` is set")
