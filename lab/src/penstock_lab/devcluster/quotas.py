"""Resource requests in whole thousandths, and ResourceQuota."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

from penstock.model import resources
from penstock_lab.devcluster import kindtable, statuses
from penstock_lab.devcluster.kindtable import Kind
from penstock_lab.devcluster.objectstore import Store
from penstock_lab.devcluster.statuses import Json

Amounts = dict[str, int]
_BINARY: Final = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki", "", "m")
_DECIMAL: Final = ("E", "P", "T", "G", "M", "k", "", "m")
_COMPUTE: Final = ("cpu", "memory")
TERMINAL: Final = ("Succeeded", "Failed")


def parse(text: object) -> int:
    """A quantity in thousandths, rounded up as in Kubernetes."""
    try:
        return math.ceil(resources.quantity(str(text)) * 1000)
    except ValueError as error:
        raise statuses.bad_request(f"quantities must match the regular expression: {error}") from error


def _in_units(value: Fraction, units: Iterable[str]) -> str:
    """The value in the largest unit that leaves no fraction."""
    for suffix in units:
        number = value / resources.quantity(f"1{suffix}")
        if value and number.denominator == 1:
            return f"{number}{suffix}"
    return str(math.ceil(value))


def canonical(text: object) -> str:
    """The quantity in the API server's canonical form: binary suffixes and exponents are kept."""
    word, value = str(text), Fraction(parse(text), 1000)
    if word.endswith("i") and value.denominator == 1:
        return _in_units(value, _BINARY)
    return word if re.search(r"[eE][+-]?\d", word) else _in_units(value, _DECIMAL)


def show(thousandths: int, resource: str) -> str:
    """The quantity as text: milli for fractional CPUs, binary suffixes for memory."""
    binary = "memory" in resource or "storage" in resource
    return _in_units(Fraction(thousandths, 1000), _BINARY if binary else ("", "m"))


def add(amounts: Iterable[Mapping[str, int]]) -> Amounts:
    total: Amounts = {}
    for one in amounts:
        for name, value in one.items():
            total[name] = total.get(name, 0) + value
    return total


def of_pod(pod: Json, which: str = "requests") -> Amounts:
    """A pod's resources: the larger of all containers' sum and any init container."""
    total = add(_said(container, which) for container in pod["spec"].get("containers") or ())
    for container in pod["spec"].get("initContainers") or ():
        total |= {name: max(total.get(name, 0), value) for name, value in _said(container, which).items()}
    return total


def _said(container: Json, which: str) -> Amounts:
    """Limits are the default of requests."""
    said = container.get("resources") or {}
    found = {**((said.get("limits") or {}) if which == "requests" else {}), **(said.get(which) or {})}
    return {name: parse(value) for name, value in found.items()}


def shortage(node: Json, pod: Json, taken: Mapping[str, int]) -> tuple[str, int, int, int] | None:
    """The first resource that the node lacks for the pod: name, wanted, used, allocatable."""
    there = {name: parse(value) for name, value in (node["status"].get("allocatable") or {}).items()}
    for name, wanted in claims(pod).items():
        if wanted and taken.get(name, 0) + wanted > there.get(name, 0):
            return name, wanted, taken.get(name, 0), there.get(name, 0)
    return None


def claims(pod: Json) -> Amounts:
    """A pod's requests, including its place among the pods."""
    return {**of_pod(pod), "pods": 1000}


def usage_of(kind: Kind, obj: Json) -> Amounts:
    """An object's usage, under every name that a quota may use for it."""
    used = {f"count/{kind.qualified}": 1000}
    if kind is kindtable.PODS and obj["status"].get("phase") in TERMINAL:
        return used
    if not kind.group:
        used[kind.plural] = 1000
    if kind is kindtable.PODS:
        requests = of_pod(obj)
        used |= {f"requests.{name}": value for name, value in requests.items()}
        used |= {name: value for name, value in requests.items() if name in _COMPUTE}
        used |= {f"limits.{name}": value for name, value in of_pod(obj, "limits").items()}
    return used


def _used_in(store: Store, namespace: str, names: Iterable[str]) -> Amounts:
    """The namespace's current usage, for these names of a quota."""
    total = dict.fromkeys(names, 0)
    for kind in kindtable.TABLE:
        if kind.namespaced and (
            kind is kindtable.PODS or {f"count/{kind.qualified}", kind.plural} & set(total)
        ):
            for entry in store.all(kind, namespace):
                used = usage_of(kind, entry.obj)
                total = {name: value + used.get(name, 0) for name, value in total.items()}
    return total


def _hard(quota: Json) -> Amounts:
    return {name: parse(value) for name, value in (quota["spec"].get("hard") or {}).items()}


def check_quota(store: Store, kind: Kind, obj: Json) -> None:
    """Refuse a new object that would exceed a quota of its namespace."""
    namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
    for entry in store.all(kindtable.QUOTAS, namespace) if namespace else ():
        hard, quota = _hard(entry.obj), entry.key[1]
        silent = _unsaid(obj, hard) if kind is kindtable.PODS else ""
        if silent:
            raise statuses.forbidden(kind, name, f"failed quota: {quota}: must specify {silent}")
        asked = {what: value for what, value in usage_of(kind, obj).items() if what in hard and value}
        used = _used_in(store, namespace, asked) if asked else {}
        over = sorted(what for what, value in asked.items() if used[what] + value > hard[what])
        if over:
            columns = (("requested", asked), ("used", used), ("limited", hard))
            shown = (f"{label}: {_listed(amounts, over)}" for label, amounts in columns)
            raise statuses.forbidden(kind, name, f"exceeded quota: {quota}, {', '.join(shown)}")


def _listed(amounts: Amounts, names: list[str]) -> str:
    return ",".join(f"{name}={show(amounts[name], name)}" for name in names)


def _unsaid(pod: Json, hard: Amounts) -> str:
    """The containers without a request or limit that a quota of CPU or memory requires."""
    missing = []
    for name in sorted(hard):
        which, _, resource = name.rpartition(".")
        said = [
            (one["name"], one["resources"].get(which or "requests") or {})
            for one in pod["spec"]["containers"]
        ]
        silent = [container for container, amounts in said if resource not in amounts]
        if resource in _COMPUTE and which in ("", "requests", "limits") and silent:
            missing.append(f"{name} for: {','.join(silent)}")
    return "; ".join(missing)


def quota_status(store: Store, quota: Json) -> Json:
    hard = dict(quota["spec"].get("hard") or {})
    used = _used_in(store, quota["metadata"]["namespace"], hard)
    return {"hard": hard, "used": {name: show(value, name) for name, value in used.items()}}
