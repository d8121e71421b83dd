"""Where objects live in the API."""

from __future__ import annotations


def path_of(resource: str, *, namespace: str = "", name: str = "", sub: str = "") -> str:
    """The URL path of a core/v1 resource."""
    parts = ["/api/v1"]
    if namespace:
        parts += ["namespaces", namespace]
    parts.append(resource)
    parts += [part for part in (name, sub) if part]
    return "/".join(parts)
