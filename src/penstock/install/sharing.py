"""Objects of ours that others still use when we go: they stay, and the plan says why.

Namespaces are kept for the pods in them. ClusterRoles have the same names on every site, so on a Kubernetes
that several sites share they are everybody's: whoever goes first must not take the others' rights along.
Classes of priority and of storage have names from site files, which may be the same: where another site is,
they stay.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from penstock import errors
from penstock.install import access, records
from penstock.render import rbac

Manifest = dict[str, Any]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLASSES = ("PriorityClass", "StorageClass")
MOST_NAMES = 3


@dataclasses.dataclass(frozen=True)
class Uses:
    """What others do with objects of a site that are about to go."""

    cluster: access.Cluster
    installed: Mapping[str, records.ObjectRecord]
    """All that is the site's own."""
    leaving: Mapping[str, records.ObjectRecord]
    """Of that, what is to be removed."""

    def reason(self, record: records.ObjectRecord) -> str:
        """Why the object has to stay; nothing when it may go."""
        kind, name = record.manifest["kind"], record.manifest["metadata"]["name"]
        if kind == "Namespace" and not record.existed:
            return "pods are in it" if self._has_pods[name] else ""
        if kind == "ClusterRole":
            return self._bound_to(name)
        if kind in CLASSES:
            return self._bound_to(rbac.ROLE, "other sites may use it")
        return ""

    @functools.cached_property
    def _has_pods(self) -> dict[str, bool]:
        """The namespaces that would go, each with everything in it."""
        made = [each.manifest for each in self.leaving.values() if not each.existed]
        names = [each["metadata"]["name"] for each in made if each["kind"] == "Namespace"]
        return {name: bool(self._items(f"/api/v1/namespaces/{name}/pods")) for name in names}

    def _bound_to(self, role: str, words: str = "bound to it") -> str:
        try:
            others = [name for name, bound in self._others if bound == role]
        except errors.KubeNotAllowed as error:
            return f"whether others are bound to it cannot be seen ({error.message})"
        more = f" and {len(others) - MOST_NAMES} more" if len(others) > MOST_NAMES else ""
        return f"{words}: {', '.join(others[:MOST_NAMES])}{more}" if others else ""

    @functools.cached_property
    def _others(self) -> list[tuple[str, str]]:
        """Bindings that are not ours, with the ClusterRole of each."""
        found = []
        for each in self._items(f"{RBAC}/clusterrolebindings"):
            name = each["metadata"]["name"]
            if f"{RBAC}/clusterrolebindings/{name}" not in self.installed:
                found.append((f"ClusterRoleBinding {name}", each["roleRef"]))
        for each in self._items(f"{RBAC}/rolebindings"):
            home, name = each["metadata"]["namespace"], each["metadata"]["name"]
            is_ours = f"{RBAC}/namespaces/{home}/rolebindings/{name}" in self.installed
            if not is_ours and self._has_pods.get(home, True):
                found.append((f"RoleBinding {home}/{name}", each["roleRef"]))
        return [(name, role["name"]) for name, role in found if role["kind"] == "ClusterRole"]

    def _items(self, path: str) -> list[Manifest]:
        return self.cluster.items(path)


def used(
    cluster: access.Cluster,
    made: Mapping[str, records.ObjectRecord],
    installed: Mapping[str, records.ObjectRecord],
) -> set[str]:
    """Paths of those of the objects that others use, although they were to be made by us, beside what is
    installed already: that is no other's.
    """
    uses = Uses(cluster, {**installed, **made}, made)
    return {path for path, record in made.items() if uses.reason(record)}
