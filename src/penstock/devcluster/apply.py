"""Server-side apply: each manager says what it wants, and what it no longer says goes.

Ownership is kept beside the objects (by uid and manager) as the last configuration that the manager
applied, instead of in metadata.managedFields; fields written by plain updates have no owner and may be
taken over.
"""

from __future__ import annotations

from typing import Any

from penstock.devcluster import patches, statuses
from penstock.devcluster.statuses import Json
from penstock.devcluster.store import Change, Entry, Store

_IDENTITY = ("apiVersion", "kind")


class Applier:
    """Remembers what every manager applied."""

    def __init__(self, store: Store) -> None:
        self._applied: dict[str, dict[str, Json]] = {}
        store.listen(None, self._forget)

    def _forget(self, change: Change) -> None:
        if change.type == "DELETED":
            self._applied.pop(change.entry.uid, None)

    def remember(self, uid: str, manager: str, wanted: Json, *, dry_run: bool) -> None:
        if not dry_run:
            self._applied.setdefault(uid, {})[manager] = wanted

    def merge(self, entry: Entry, manager: str, wanted: Json, *, force: bool) -> Json:
        """The object as it should be after this manager's apply."""
        known = self._applied.get(entry.uid, {})
        live = entry.copy()
        others = {name: applied for name, applied in known.items() if name != manager}
        if not force:
            self._check_conflicts(entry, wanted, live, others)
        for name in others if force else ():
            known[name] = _without(known[name], wanted)
        before = known.get(manager, {})
        pruned = _prune(live, before, wanted, list(others.values()))
        merged: Json = patches.strategic(pruned, wanted)
        return merged

    def _check_conflicts(self, entry: Entry, wanted: Json, live: Json, others: dict[str, Json]) -> None:
        for name, applied in others.items():
            fields = sorted(_differences(wanted, live, applied))
            if fields:
                shown = f": {fields[0]}" if len(fields) == 1 else "".join(f"\n- {field}" for field in fields)
                plural = "s" * (len(fields) > 1)
                message = (
                    f'Apply failed with {len(fields)} conflict{plural}: conflict{plural} with "{name}"{shown}'
                )
                causes = [
                    {"reason": "FieldManagerConflict", "message": f'conflict with "{name}"', "field": one}
                    for one in fields
                ]
                details = {**statuses.about(entry.kind, entry.key[1]), "causes": causes}
                raise statuses.ApiError(409, "Conflict", message, details=details)


def _pairs(field: str, *trees: Any) -> list[tuple[str, list[Any]]]:
    """Walk several trees in step: for every name in the first, the values of all (None where missing)."""
    first = trees[0]
    if isinstance(first, dict):
        return [(name, [_get(tree, name) for tree in trees]) for name in first if name not in _IDENTITY]
    key = patches.merge_key(field, first) if isinstance(first, list) else None
    if key is None:
        return []
    names = [item[key] for item in first if isinstance(item, dict) and key in item]
    return [(str(name), [_item(tree, key, name) for tree in trees]) for name in names]


def _get(tree: Any, name: str) -> Any:
    return tree.get(name) if isinstance(tree, dict) else None


def _item(tree: Any, key: str, name: Any) -> Any:
    items = tree if isinstance(tree, list) else []
    return next((item for item in items if isinstance(item, dict) and item.get(key) == name), None)


def _is_branch(field: str, value: Any) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and patches.merge_key(field, value) is not None
    )


def _differences(wanted: Any, live: Any, applied: Any, *, field: str = "", path: str = "") -> set[str]:
    """Leaves that this apply would change although another manager applied them."""
    found: set[str] = set()
    for name, (want, have, other) in _pairs(field, wanted, live, applied):
        where = f"{path}.{name}"
        if _is_branch(name, want):
            found |= _differences(want, have, other, field=name, path=where)
        elif other is not None and have != want:
            found.add(where)
    return found


def _without(applied: Any, wanted: Any, *, field: str = "") -> Any:
    """What another manager still owns after this one took over its leaves by force."""
    if not isinstance(applied, dict):
        return applied
    kept = {}
    for name, value in applied.items():
        want = _get(wanted, name)
        if want is None or name in _IDENTITY:
            kept[name] = value
        elif isinstance(value, dict) and isinstance(want, dict):
            kept[name] = _without(value, want)
    return kept


def _prune(live: Any, before: Any, wanted: Any, others: list[Any], *, field: str = "") -> Any:
    """The live object without what only this manager applied before and does not want now."""
    for name, (had, want, *held) in _pairs(field, before, wanted, *others):
        if want is None and not any(one is not None for one in held):
            live = _drop(live, field, name)
        elif _is_branch(name, had) or isinstance(live, list):
            live = _put(live, field, name, _prune(_child(live, field, name), had, want, held, field=name))
    return live


def _child(live: Any, field: str, name: str) -> Any:
    if isinstance(live, dict):
        return live.get(name)
    key = patches.merge_key(field, live or [])
    return next((item for item in live or () if key and str(item.get(key)) == name), None)


def _drop(live: Any, field: str, name: str) -> Any:
    if isinstance(live, dict):
        return {key: value for key, value in live.items() if key != name}
    key = patches.merge_key(field, live or [])
    return [item for item in live or () if not (key and str(item.get(key)) == name)]


def _put(live: Any, field: str, name: str, value: Any) -> Any:
    if isinstance(live, dict):
        return {**live, name: value} if value is not None else live
    key = patches.merge_key(field, live or [])
    return [value if key and str(item.get(key)) == name else item for item in live or ()]
