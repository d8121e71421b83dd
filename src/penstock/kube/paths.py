"""Where objects live in the API."""

from __future__ import annotations


def path_of(resource: str, *, namespace: str = "", name: str = "", sub: str = "") -> str:
    """The URL path of a v1 resource: "pods" of the core group, or "networkpolicies.networking.k8s.io"."""
    plural, _, group = resource.partition(".")
    parts = [f"/apis/{group}/v1" if group else "/api/v1"]
    if namespace:
        parts += ["namespaces", namespace]
    parts.append(plural)
    parts += [part for part in (name, sub) if part]
    return "/".join(parts)
