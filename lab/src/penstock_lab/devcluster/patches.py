"""Patches: merge, strategic merge, JSON patch, server-side apply.

Strategic merge treats a list as a map if its field has a merge key; the table below has those of pods, nodes
and related kinds. Other lists are replaced, as with a plain merge.
"""

from __future__ import annotations

import copy
import functools
from typing import Any, Final

from penstock_lab.devcluster import statuses
from penstock_lab.devcluster.objectstore import Entry
from penstock_lab.devcluster.statuses import Json

_BY_NAME: Final = ("containers", "env", "volumes", "imagePullSecrets", "secrets", "initContainers")
MERGE_KEYS: Final[dict[str, str]] = {
    **dict.fromkeys(_BY_NAME, "name"),
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "conditions": "type",
    "addresses": "type",
    "ownerReferences": "uid",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
_IDENTITY: Final = ("apiVersion", "kind")
_BRANCH: Final = object()
_Step = str | tuple[str, Any]
Fields = dict[tuple[_Step, ...], Any]
"""The nodes of a tree by path, elements of keyed lists by their key: a value, or _BRANCH."""


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: merge objects; null removes; anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def strategic(target: Any, patch: Any, *, field: str = "") -> Any:
    """Merge with keyed lists of the built-in kinds and $ directives."""
    if isinstance(patch, list):
        return _strategic_list(target if isinstance(target, list) else [], patch, field)
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        directive, _, bare = name.partition("/")
        if directive == "$deleteFromPrimitiveList":
            result[bare] = [item for item in result.get(bare) or [] if item not in value]
        elif directive == "$retainKeys":
            result = {key: kept for key, kept in result.items() if key in value}
        elif value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            result.pop(name, None)
        elif directive not in ("$setElementOrder", "$patch"):
            result[name] = strategic(result.get(name), value, field=name)
    return result


def _merge_key(field: str, items: list[Any]) -> str | None:
    """For ports of services the key is `port`."""
    key = MERGE_KEYS.get(field)
    if key == "containerPort" and any(isinstance(item, dict) and key not in item for item in items):
        key = "port"
    return key if all(isinstance(item, dict) for item in items) else None


def _strategic_list(target: list[Any], patch: list[Any], field: str) -> list[Any]:
    if field == "finalizers":
        return [*target, *(item for item in patch if item not in target)]
    key = _merge_key(field, patch)
    if key is None:
        return patch
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    result = {item.get(key): item for item in target}
    for item in patch:
        if item.get("$patch") == "delete":
            result.pop(item.get(key), None)
        else:
            result[item.get(key)] = strategic(result.get(item.get(key)), item)
    return list(result.values())


def json_patch(document: Any, operations: Any) -> Any:
    """RFC 6902; changes the document in place."""
    if not isinstance(operations, list):
        raise statuses.bad_request("a JSON patch is a list of operations")
    for operation in operations:
        try:
            document = _operate(document, operation)
        except (LookupError, TypeError) as error:
            why = f"the server rejected our request due to an error in our request: {operation}"
            raise statuses.ApiError(422, "Invalid", why) from error
    return document


def _operate(document: Any, operation: Json) -> Any:
    name, path, value = operation["op"], _pointer(operation["path"]), operation.get("value")
    away = path if name in ("remove", "replace") else None
    if name in ("move", "copy"):
        source = _pointer(operation["from"])
        value = copy.deepcopy(functools.reduce(_at, source, document))
        away = source if name == "move" else None
    elif name not in ("add", "remove", "replace", "test"):
        raise LookupError(name)
    if name == "test" and functools.reduce(_at, path, document) != value:
        raise LookupError("value does not match")
    if away is not None:
        parent = functools.reduce(_at, away[:-1], document)
        del parent[_key(parent, away[-1])]
    return document if name in ("remove", "test") else _add(document, path, value)


def _pointer(path: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _key(parent: Any, part: str) -> Any:
    """A part of a pointer as a key of its parent: a name, or the index in a list."""
    if isinstance(parent, list):
        index = len(parent) if part == "-" else int(part) if part.isdigit() else -1
        if not 0 <= index <= len(parent):
            raise LookupError(part)
        return index
    return part


def _at(parent: Any, part: str) -> Any:
    return parent[_key(parent, part)]


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = functools.reduce(_at, path[:-1], document)
    key = _key(parent, path[-1])
    if isinstance(parent, list):
        parent.insert(key, value)
    else:
        parent[key] = value
    return document


def fields(tree: Any, field: str = "") -> Fields:
    children: list[tuple[_Step, str, Any]] = []
    key = _merge_key(field, tree) if isinstance(tree, list) else None
    if isinstance(tree, dict):
        children = [(name, name, value) for name, value in tree.items() if name not in _IDENTITY]
    elif key:
        children = [((key, item[key]), "", item) for item in tree if key in item]
    found: Fields = {}
    for step, name, value in children:
        is_branch = isinstance(value, dict) or (isinstance(value, list) and name in MERGE_KEYS)
        found[(step,)] = _BRANCH if is_branch else value
        found |= {(step, *path): leaf for path, leaf in (fields(value, name) if is_branch else {}).items()}
    return found


def _child(node: Any, step: _Step) -> Any:
    if isinstance(node, list):
        return next((item for item in node if isinstance(item, dict) and item.get(step[0]) == step[1]), None)
    return node.get(step) if isinstance(node, dict) else None


def apply(entry: Entry, manager: str, wanted: Json, managers: dict[str, Fields], *, force: bool) -> Json:
    """Server-side apply: apply this manager's fields, and remove those that only it had applied before.

    `managers` has the fields that each manager applied last; fields of plain updates have no owner. With
    force, this manager takes over conflicting fields.
    """
    live, said = entry.copy(), fields(wanted)
    others = {name: theirs for name, theirs in managers.items() if name != manager}
    leaves = {path: value for path, value in said.items() if value is not _BRANCH}
    for name, theirs in others.items():
        lost = [path for path, value in leaves.items() if path in theirs and value != _value(live, path)]
        if lost and not force:
            raise _conflict(entry, name, sorted(map(_written, lost)))
        for path in lost:
            del theirs[path]
    kept = said.keys() | {path for theirs in others.values() for path in theirs}
    _prune(live, {path: old for path, old in managers.get(manager, {}).items() if path not in kept})
    merged: Json = strategic(live, wanted)
    return merged


def _value(tree: Any, path: tuple[_Step, ...]) -> Any:
    return functools.reduce(_child, path, tree)


def _prune(live: Json, gone: Fields) -> None:
    """Remove whole elements first, then leaves, then branches that are empty."""
    for path in sorted(gone, key=lambda path: (isinstance(path[-1], str), -len(path))):
        parent, step = _value(live, path[:-1]), path[-1]
        if isinstance(parent, list):
            parent[:] = [item for item in parent if item.get(step[0]) != step[1]]
        elif isinstance(parent, dict) and not (gone[path] is _BRANCH and parent.get(str(step))):
            parent.pop(str(step), None)


def _written(path: tuple[_Step, ...]) -> str:
    return "".join(f".{step}" if isinstance(step, str) else f'[{step[0]}="{step[1]}"]' for step in path)


def _conflict(entry: Entry, other: str, names: list[str]) -> statuses.ApiError:
    many = "s" * (len(names) > 1)
    shown = "".join(f"\n- {name}" for name in names) if many else f": {names[0]}"
    message = f'Apply failed with {len(names)} conflict{many}: conflict{many} with "{other}"{shown}'
    cause = {"reason": "FieldManagerConflict", "message": f'conflict with "{other}"'}
    details = {
        **statuses.about(entry.kind, entry.key[1]),
        "causes": [{**cause, "field": name} for name in names],
    }
    return statuses.ApiError(409, "Conflict", message, details)
