"""The three patches a client may send: merge, strategic merge for the built-in kinds, and JSON patch.

Strategic merge treats a list as a map when its elements have a merge key. Which key that is depends on the
field; the table below names the ones of pods, nodes and their relatives. A list that is not in the table is
replaced, as with a plain merge.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

from penstock.devcluster import statuses
from penstock.devcluster.statuses import Json

MERGE_KEYS: Final[dict[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "conditions": "type",
    "addresses": "type",
    "ownerReferences": "uid",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "secrets": "name",
}
PRIMITIVE_SETS: Final = {"finalizers"}
_KEYLESS: Final = object()


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: objects are merged, null removes, everything else replaces."""
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
    """A merge that knows the keyed lists of the built-in kinds, and the directives that begin with $."""
    if isinstance(patch, list):
        return _strategic_list(target if isinstance(target, list) else [], patch, field)
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        _strategic_field(result, name, value)
    return result


def _strategic_field(result: Json, name: str, value: Any) -> None:
    prefix, _, bare = name.partition("/")
    if prefix == "$deleteFromPrimitiveList":
        result[bare] = [item for item in result.get(bare) or [] if item not in value]
    elif prefix == "$retainKeys":
        for key in [key for key in result if key not in value]:
            del result[key]
    elif prefix in ("$setElementOrder", "$patch"):
        return
    elif value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
        result.pop(name, None)
    else:
        result[name] = strategic(result.get(name), value, field=name)


def merge_key(field: str, items: list[Any]) -> str | None:
    """The key by which elements of this list are told apart; services call theirs `port`."""
    key = MERGE_KEYS.get(field)
    if key == "containerPort" and any(isinstance(item, dict) and key not in item for item in items):
        key = "port"
    return key


def _strategic_list(target: list[Any], patch: list[Any], field: str) -> list[Any]:
    if field in PRIMITIVE_SETS:
        return [*target, *(item for item in patch if item not in target)]
    key = merge_key(field, patch)
    if key is None:
        return patch
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    result = {item.get(key, _KEYLESS): item for item in target}
    for item in patch:
        if item.get("$patch") == "delete":
            result.pop(item.get(key), None)
        else:
            result[item.get(key)] = strategic(result.get(item.get(key)), item)
    return list(result.values())


def _pointer(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise statuses.bad_request(f"not a JSON pointer: {path!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _step(parent: Any, part: str, *, last: bool = False) -> Any:
    """The key of one pointer part in its parent: a name, or the index of a list."""
    if isinstance(parent, dict):
        return part
    if not isinstance(parent, list) or not (part == "-" or part.isdigit()):
        raise LookupError(part)
    index = len(parent) if part == "-" else int(part)
    if index > len(parent) or (index == len(parent) and not last):
        raise LookupError(part)
    return index


def _locate(document: Any, parts: list[str]) -> tuple[Any, Any]:
    for part in parts[:-1]:
        document = document[_step(document, part)]
    return document, _step(document, parts[-1], last=True)


def _read(document: Any, path: str) -> Any:
    for part in _pointer(path):
        document = document[_step(document, part)]
    return document


def _add(document: Any, path: str, value: Any) -> Any:
    if not path:
        return value
    parent, key = _locate(document, _pointer(path))
    if isinstance(parent, list):
        parent.insert(key, value)
    else:
        parent[key] = value
    return document


def _remove(document: Any, path: str) -> Any:
    parent, key = _locate(document, _pointer(path))
    del parent[key]
    return document


def _test(document: Any, operation: Json) -> Any:
    if _read(document, operation["path"]) != operation.get("value"):
        raise statuses.ApiError(
            422, "Invalid", f"testing path {operation['path']} failed: value does not match"
        )
    return document


def _replace(document: Any, operation: Json) -> Any:
    _read(document, operation["path"])
    return _add(_remove(document, operation["path"]), operation["path"], operation.get("value"))


def _move(document: Any, operation: Json) -> Any:
    value = _read(document, operation["from"])
    return _add(_remove(document, operation["from"]), operation["path"], value)


_OPERATIONS: Final[dict[str, Callable[[Any, Json], Any]]] = {
    "add": lambda document, op: _add(document, op["path"], op.get("value")),
    "remove": lambda document, op: _remove(document, op["path"]),
    "replace": _replace,
    "test": _test,
    "move": _move,
    "copy": lambda document, op: _add(document, op["path"], copy.deepcopy(_read(document, op["from"]))),
}


def json_patch(document: Any, operations: Any) -> Any:
    """RFC 6902; the document is changed in place, so it must be the caller's own copy."""
    if not isinstance(operations, list):
        raise statuses.bad_request("a JSON patch is a list of operations")
    for operation in operations:
        try:
            document = _OPERATIONS[operation["op"]](document, operation)
        except (LookupError, TypeError) as error:
            why = f"the server rejected our request due to an error in our request: {operation}"
            raise statuses.ApiError(422, "Invalid", why) from error
    return document
