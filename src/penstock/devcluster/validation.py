"""The checks of a real server that clients rely on: names, labels, the shape of pods, what may not change."""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.devcluster import kinds, quantities, statuses
from penstock.devcluster.kinds import Kind
from penstock.devcluster.statuses import Json

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LOOSELY_NAMED: Final = ("rbac.authorization.k8s.io",)
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_MUTABLE_SPEC: Final = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character"
)
_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must "
    "start and end with an alphanumeric character"
)


def check(kind: Kind, obj: Json) -> None:
    """Refuse a new object that a real server would refuse."""
    metadata = obj["metadata"]
    name = metadata.get("name")
    if not name:
        raise statuses.invalid(kind, "", "metadata.name", "Required value: name or generateName is required")
    _check_name(kind, str(name))
    _check_labels(kind, str(name), metadata)
    if kind is kinds.PODS:
        _check_pod(obj, str(name))
    if kind is kinds.DEFINITIONS:
        _check_definition(obj, str(name))


def _check_name(kind: Kind, name: str) -> None:
    if kind.group in _LOOSELY_NAMED:
        good, rule = name not in (".", "..") and not set(name) & {"/", "%"}, "may not contain '/' or '%'"
    elif kind is kinds.NAMESPACES:
        good, rule = bool(_LABEL.fullmatch(name)), _LABEL_RULE
    else:
        good, rule = bool(_SUBDOMAIN.fullmatch(name)) and len(name) <= 253, _SUBDOMAIN_RULE
    if not good:
        raise statuses.invalid(kind, name, "metadata.name", f'Invalid value: "{name}": {rule}')


def _check_labels(kind: Kind, name: str, metadata: Json) -> None:
    for key, value in (metadata.get("labels") or {}).items():
        if not _KEY.fullmatch(key):
            raise statuses.invalid(
                kind, name, "metadata.labels", f'Invalid value: "{key}": name part must be a label key'
            )
        if not isinstance(value, str):
            raise statuses.bad_request(f"metadata.labels of type string expected, got {value!r}")
        if not _VALUE.fullmatch(value):
            why = f'Invalid value: "{value}": at most 63 characters: alphanumeric, "-", "_" or "."'
            raise statuses.invalid(kind, name, "metadata.labels", why)
    for key, value in (metadata.get("annotations") or {}).items():
        if not isinstance(value, str):
            raise statuses.bad_request(f"metadata.annotations[{key}] of type string expected, got {value!r}")


def _check_definition(obj: Json, name: str) -> None:
    spec = obj.get("spec") or {}
    names = spec.get("names") or {}
    if not (names.get("plural") and names.get("kind") and spec.get("group") and spec.get("versions")):
        raise statuses.invalid(
            kinds.DEFINITIONS, name, "spec", "Required value: group, versions, names.plural, names.kind"
        )
    if name != f"{names['plural']}.{spec['group']}":
        why = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
        raise statuses.invalid(kinds.DEFINITIONS, name, "metadata.name", why)


def _check_pod(obj: Json, name: str) -> None:
    spec = obj["spec"]
    if not spec.get("containers"):
        raise statuses.invalid(kinds.PODS, name, "spec.containers", "Required value")
    if spec["restartPolicy"] not in _RESTART_POLICIES:
        why = (
            f'Unsupported value: "{spec["restartPolicy"]}": supported values: "Always", "OnFailure", "Never"'
        )
        raise statuses.invalid(kinds.PODS, name, "spec.restartPolicy", why)
    volumes = _names_of(spec.get("volumes") or [], name, "spec.volumes")
    for field in ("initContainers", "containers"):
        containers = spec.get(field) or []
        _names_of(containers, name, f"spec.{field}")
        for index, container in enumerate(containers):
            _check_container(container, name, f"spec.{field}[{index}]", volumes)


def _names_of(items: list[Json], pod: str, field: str) -> set[str]:
    """The names of a list's elements: each there, well-formed and unique."""
    seen: set[str] = set()
    for index, item in enumerate(items):
        name = item.get("name")
        if not name:
            raise statuses.invalid(kinds.PODS, pod, f"{field}[{index}].name", "Required value")
        if not _LABEL.fullmatch(name):
            raise statuses.invalid(
                kinds.PODS, pod, f"{field}[{index}].name", f'Invalid value: "{name}": {_LABEL_RULE}'
            )
        if name in seen:
            raise statuses.invalid(kinds.PODS, pod, f"{field}[{index}].name", f'Duplicate value: "{name}"')
        seen.add(name)
    return seen


def _check_container(container: Json, pod: str, field: str, volumes: set[str]) -> None:
    if not container.get("image"):
        raise statuses.invalid(kinds.PODS, pod, f"{field}.image", "Required value")
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            where = f"{field}.volumeMounts[{index}].name"
            raise statuses.invalid(kinds.PODS, pod, where, f'Not found: "{mount.get("name")}"')
        if not mount.get("mountPath"):
            raise statuses.invalid(
                kinds.PODS, pod, f"{field}.volumeMounts[{index}].mountPath", "Required value"
            )
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name") or "=" in variable["name"]:
            raise statuses.invalid(kinds.PODS, pod, f"{field}.env[{index}].name", "Required value")
    limits = container["resources"].get("limits") or {}
    for resource, wanted in (container["resources"].get("requests") or {}).items():
        limit = limits.get(resource)
        if limit is not None and quantities.parse(wanted) > quantities.parse(limit):
            why = f'Invalid value: "{wanted}": must be less than or equal to {resource} limit of {limit}'
            raise statuses.invalid(kinds.PODS, pod, f"{field}.resources.requests", why)


def _frozen(spec: Json) -> dict[str, Any]:
    """The part of a pod's spec that may never change: images and a few fields may."""
    kept = {field: value for field, value in spec.items() if field not in _MUTABLE_SPEC}
    for field in ("containers", "initContainers"):
        kept[field] = [
            {key: value for key, value in one.items() if key != "image"} for one in kept.get(field) or ()
        ]
    return kept


def check_update(kind: Kind, old: Json, obj: Json) -> None:
    """Refuse a change that a real server would refuse."""
    name = str(old["metadata"]["name"])
    _check_labels(kind, name, obj["metadata"])
    if kind is kinds.PODS and _frozen(obj.get("spec") or {}) != _frozen(old["spec"]):
        why = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, "
            "`spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` "
            "(only additions to existing tolerations), `spec.terminationGracePeriodSeconds` "
            "(allow it to be set to 1 if it was previously negative)"
        )
        raise statuses.invalid(kind, name, "spec", why)
    changed = any(obj.get(field) != old.get(field) for field in ("data", "binaryData", "immutable"))
    if kind in (kinds.SECRETS, kinds.CONFIGMAPS) and old.get("immutable") and changed:
        raise statuses.invalid(kind, name, "data", "Forbidden: field is immutable when `immutable` is set")
