"""Parses HTTP requests to the API into verb, resource and name."""

from __future__ import annotations

import dataclasses
import urllib.parse

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "update", "DELETE": "delete"}
_SUBRESOURCES = {"binding": "bind", "log": "log", "exec": "exec"}


@dataclasses.dataclass(frozen=True)
class Request:
    verb: str
    resource: str
    name: str = ""


def understand(method: str, target: str) -> Request:
    """Parse a method and a target such as /api/v1/namespaces/a/pods/b?watch=1."""
    path, _, query = target.partition("?")
    resource, name, sub = _object(path.strip("/").split("/"))
    if sub in _SUBRESOURCES:
        return Request(_SUBRESOURCES[sub], resource, name)
    if method != "GET":
        return Request(_VERBS.get(method, method.lower()), resource, name)
    if name:
        return Request("get", resource, name)
    watching = urllib.parse.parse_qs(query).get("watch", [""])[0] in ("1", "true")
    return Request("watch" if watching else "list", resource)


def _object(parts: list[str]) -> tuple[str, str, str]:
    """Resource, name and subresource of a path below /api/v1 or /apis/GROUP/VERSION."""
    below = parts[2:] if parts[:1] == ["api"] else parts[3:] if parts[:1] == ["apis"] else []
    if below[:1] == ["namespaces"] and len(below) > 2:
        below = below[2:]
    resource, name, sub = (*below, "", "", "")[:3]
    return resource, name, sub
