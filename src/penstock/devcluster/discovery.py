"""What clients ask before they ask for anything: groups, resources, version, OpenAPI.

OpenAPI is kept to what kubectl needs. Version 3 names each kind and says that the server checks fields
itself, so that kubectl does not want schemas; version 2 is an empty document, which older kubectl takes as
"nothing to check".
"""

from __future__ import annotations

from typing import Final

from penstock.devcluster import statuses
from penstock.devcluster.kinds import Kind, Registry
from penstock.devcluster.statuses import Json

_VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUB_KINDS: Final = {
    "log": ("Pod", "", "", ["get"]),
    "binding": ("Binding", "", "", ["create"]),
    "eviction": ("Eviction", "policy", "v1", ["create"]),
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


def answer(path: str, registry: Registry) -> Json | None:
    """The document at a discovery path, or None when the path is something else."""
    parts = path.strip("/").split("/")
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if parts == ["apis"]:
        groups = [_group(name, versions) for name, versions in registry.group_versions().items() if name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if parts[0] == "apis" and len(parts) == 2 and parts[1] in registry.group_versions():
        return {
            "kind": "APIGroup",
            "apiVersion": "v1",
            **_group(parts[1], registry.group_versions()[parts[1]]),
        }
    if (parts[0] == "api" and len(parts) == 2) or (parts[0] == "apis" and len(parts) == 3):
        return _resources(parts[1] if parts[0] == "apis" else "", parts[-1], registry)
    if parts[:2] == ["openapi", "v3"]:
        return _openapi3(parts[2:], registry)
    return None


def _group(name: str, versions: list[str]) -> Json:
    found = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": found, "preferredVersion": found[0], "serverAddressByClientCIDRs": []}


def _resources(group: str, version: str, registry: Registry) -> Json:
    found = [kind for kind in registry if (kind.group, kind.version) == (group, version)]
    if not found:
        raise statuses.no_such_path()
    resources = [resource for kind in found for resource in (_resource(kind), *_subresources(kind))]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": found[0].api_version,
        "resources": resources,
    }


def _resource(kind: Kind) -> Json:
    short = {"shortNames": list(kind.short)} if kind.short else {}
    names = {
        "name": kind.plural,
        "singularName": kind.singular,
        "kind": kind.kind,
        "namespaced": kind.namespaced,
    }
    categories = {"categories": ["all"]} if kind.plural in ("pods", "services", "deployments", "jobs") else {}
    return {**names, "verbs": _VERBS, **short, **categories}


def _subresources(kind: Kind) -> list[Json]:
    found = []
    for name in kind.subresources:
        sub_kind, group, version, verbs = _SUB_KINDS.get(
            name, (kind.kind, "", "", ["get", "patch", "update"])
        )
        place = {"group": group, "version": version} if group else {}
        base = {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": sub_kind,
        }
        found.append({**base, "verbs": verbs, **place})
    return found


def _openapi3(parts: list[str], registry: Registry) -> Json:
    if not parts:
        places = {kind.base_path.strip("/") for kind in registry}
        return {"paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}"} for place in sorted(places)}}
    found = [kind for kind in registry if kind.base_path.strip("/") == "/".join(parts)]
    if not found:
        raise statuses.no_such_path()
    info = {"title": "Penstock dev cluster", "version": str(VERSION["gitVersion"])}
    paths = {path: description for kind in found for path, description in (_path(kind),)}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}


def _path(kind: Kind) -> tuple[str, Json]:
    middle = "/namespaces/{namespace}" if kind.namespaced else ""
    identity = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    names = ("dryRun", "fieldManager", "fieldValidation", "force")
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]
    operation = {
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": identity,
    }
    return f"{kind.base_path}{middle}/{kind.plural}/{{name}}", {"patch": operation}
