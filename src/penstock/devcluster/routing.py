"""URL paths of the resource API: /api/v1/... and /apis/GROUP/VERSION/..., with or without a namespace."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.devcluster import statuses
from penstock.devcluster.kinds import Kind, Registry


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about."""

    kind: Kind
    namespace: str | None  # None: all namespaces, or a kind that has none
    name: str = ""
    subresource: str = ""

    @property
    def home(self) -> str:
        """The namespace part of the object's key."""
        return self.namespace or ""


def parse(path: str, registry: Registry) -> Target:
    """The target of a path; a path that names nothing served is a 404."""
    group, version, rest = _prefix(path)
    namespace = None
    if (
        len(rest) >= 3
        and rest[0] == "namespaces"
        and not (len(rest) == 3 and rest[2] in ("status", "finalize"))
    ):
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3:
        raise statuses.no_such_path()
    kind = registry.find(group, version, rest[0])
    name, subresource = (*rest[1:], "", "")[:2]
    if kind is None or (subresource and subresource not in kind.subresources):
        raise statuses.no_such_path()
    if kind.namespaced != (namespace is not None) and (name or namespace is not None):
        raise statuses.no_such_path()
    return Target(kind, namespace, name, subresource)


def _prefix(path: str) -> tuple[str, str, list[str]]:
    """Group, version and the rest of the parts."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        return "", parts[1], parts[2:]
    if parts[0] == "apis" and len(parts) > 3:
        return parts[1], parts[2], parts[3:]
    raise statuses.no_such_path()
