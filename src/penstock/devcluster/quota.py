"""ResourceQuota: what a namespace may hold, checked at creation and kept in the quota's status."""

from __future__ import annotations

from typing import Final

from penstock.devcluster import kinds, quantities, statuses
from penstock.devcluster.kinds import Kind
from penstock.devcluster.quantities import Amounts
from penstock.devcluster.statuses import Json
from penstock.devcluster.store import Store

_COMPUTE: Final = ("cpu", "memory")
_MUST_BE_SAID: Final = {
    f"{which}.{name}": (which, name) for which in ("requests", "limits") for name in _COMPUTE
} | {name: ("requests", name) for name in _COMPUTE}


def usage_of(kind: Kind, obj: Json) -> Amounts:
    """What one object counts for, under every name a quota may use for it."""
    used = {f"count/{kind.qualified}": 1000}
    if not kind.group:
        used[kind.plural] = 1000
    if kind is not kinds.PODS:
        return used
    if obj["status"].get("phase") in ("Succeeded", "Failed"):
        return {f"count/{kind.qualified}": 1000}
    for name, value in quantities.of_pod(obj).items():
        used[f"requests.{name}"] = value
        if name in _COMPUTE:
            used[name] = value
    used.update({f"limits.{name}": value for name, value in quantities.of_pod(obj, "limits").items()})
    return used


def used_in(store: Store, namespace: str, names: set[str]) -> Amounts:
    """What the namespace holds now, for these names of a quota."""
    total = dict.fromkeys(names, 0)
    for kind in kinds.TABLE:
        wanted = {f"count/{kind.qualified}", kind.plural} if kind is not kinds.PODS else names
        if kind.namespaced and wanted & names:
            for entry in store.all(kind, namespace):
                for name, value in usage_of(kind, entry.obj).items():
                    if name in total:
                        total[name] += value
    return total


def _hard(quota: Json) -> Amounts:
    return {name: quantities.parse(value) for name, value in (quota["spec"].get("hard") or {}).items()}


def admit(store: Store, kind: Kind, obj: Json) -> None:
    """Refuse the new object when a quota of its namespace would be exceeded."""
    namespace = obj["metadata"].get("namespace", "")
    for entry in store.all(kinds.QUOTAS, namespace) if namespace else ():
        hard = _hard(entry.obj)
        if kind is kinds.PODS:
            _check_said(obj, entry.key[1], hard)
        asked = {name: value for name, value in usage_of(kind, obj).items() if name in hard and value}
        used = used_in(store, namespace, set(asked)) if asked else {}
        over = sorted(name for name, value in asked.items() if used[name] + value > hard[name])
        if over:
            shown = (f"{label}: {_shown(amounts, over)}" for label, amounts in _columns(asked, used, hard))
            why = f"exceeded quota: {entry.key[1]}, {', '.join(shown)}"
            raise statuses.forbidden(kind, obj["metadata"]["name"], why)


def _columns(asked: Amounts, used: Amounts, hard: Amounts) -> list[tuple[str, Amounts]]:
    return [("requested", asked), ("used", used), ("limited", hard)]


def _shown(amounts: Amounts, names: list[str]) -> str:
    return ",".join(f"{name}={quantities.show(amounts[name], name)}" for name in names)


def _check_said(pod: Json, quota_name: str, hard: Amounts) -> None:
    """A quota on CPU or memory obliges every container to say how much it wants."""
    missing = []
    for name in sorted(set(hard) & set(_MUST_BE_SAID)):
        which, resource = _MUST_BE_SAID[name]
        silent = [
            one["name"]
            for one in pod["spec"]["containers"]
            if resource not in (one["resources"].get(which) or {})
        ]
        if silent:
            missing.append(f"{name} for: {','.join(silent)}")
    if missing:
        why = f"failed quota: {quota_name}: must specify {'; '.join(missing)}"
        raise statuses.forbidden(kinds.PODS, pod["metadata"]["name"], why)


def status_of(store: Store, quota: Json) -> Json:
    """The quota's status as it should be now."""
    hard = _hard(quota)
    used = used_in(store, quota["metadata"]["namespace"], set(hard))
    return {
        "hard": dict(quota["spec"].get("hard") or {}),
        "used": {name: quantities.show(used[name], name) for name in hard},
    }
