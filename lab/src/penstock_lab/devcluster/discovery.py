"""The discovery API: groups, resources, version, OpenAPI.

OpenAPI has only what kubectl needs. Version 3 has each kind and declares server-side field validation, so
kubectl needs no schemas; version 2 is an empty document, with which older kubectl validates nothing.
"""

from __future__ import annotations

from typing import Final

from penstock_lab.devcluster import statuses
from penstock_lab.devcluster.kindtable import Kind, Registry
from penstock_lab.devcluster.statuses import Json

_VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUB_KINDS: Final[dict[str, Json]] = {
    "log": {"kind": "Pod", "verbs": ["get"]},
    "binding": {"kind": "Binding", "verbs": ["create"]},
    "eviction": {"kind": "Eviction", "group": "policy", "version": "v1", "verbs": ["create"]},
}
VERSION: Final[Json] = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.0-devcluster",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}
_INFO: Final = {"title": "Penstock dev cluster", "version": VERSION["gitVersion"]}


def answer(path: str, registry: Registry) -> Json | None:
    """The document at a discovery path; None for other paths."""
    match path.strip("/").split("/"):
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = dict.fromkeys(kind.group for kind in registry.values() if kind.group)
            return {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_group(one, registry) for one in groups],
            }
        case ["apis", group] if any(kind.group == group for kind in registry.values()):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, registry)}
        case ["api", _] | ["apis", _, _]:
            return _resources(_served(path, registry))
        case ["openapi", "v2"]:
            return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}
        case ["openapi", "v3"]:
            places = sorted({kind.base_path[1:] for kind in registry.values()})
            return {"paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}"} for place in places}}
        case ["openapi", "v3", *rest]:
            paths = dict(_operation(kind) for kind in _served("/".join(rest), registry))
            return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": {}}}
    return None


def _group(name: str, registry: Registry) -> Json:
    versions = dict.fromkeys(kind.version for kind in registry.values() if kind.group == name)
    found = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": found, "preferredVersion": found[0], "serverAddressByClientCIDRs": []}


def _served(path: str, registry: Registry) -> list[Kind]:
    found = [kind for kind in registry.values() if kind.base_path.strip("/") == path.strip("/")]
    if not found:
        raise statuses.ApiError(*statuses.NO_SUCH_PATH)
    return found


def _resources(served: list[Kind]) -> Json:
    found: list[Json] = []
    for kind in served:
        place = {"namespaced": kind.namespaced, "kind": kind.kind}
        short = {"shortNames": list(kind.short)} if kind.short else {}
        found.append(
            {"name": kind.plural, "singularName": kind.kind.lower(), **place, "verbs": _VERBS, **short}
        )
        for part in kind.subresources:
            sub = {**place, **_SUB_KINDS.get(part, {"verbs": ["get", "patch", "update"]})}
            found.append({"name": f"{kind.plural}/{part}", "singularName": "", **sub})
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": served[0].api_version}
    return {**head, "resources": found}


def _operation(kind: Kind) -> tuple[str, Json]:
    """A patch operation whose parameters declare server-side field validation."""
    names = ("dryRun", "fieldManager", "fieldValidation", "force")
    operation = {
        "parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    }
    middle = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"{kind.base_path}{middle}/{kind.plural}/{{name}}", {"patch": operation}
