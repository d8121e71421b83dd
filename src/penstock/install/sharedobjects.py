"""Finds objects of ours that others still use: `uninstall` keeps them, and the plan says why.

Roles, bindings and field managers are named after the Slurm cluster, so those of several sites on one
Kubernetes differ. Namespaces, their objects, PriorityClasses and StorageClasses are named in site files and
may be shared: they stay if another site has applied them, too. An API without managedFields still shows the
bindings of other sites. Namespaces also stay if they have pods, and roles if an administrator has bound them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock import errors, wording
from penstock.install import inventory, kubeadmin
from penstock.kube import kinds, types
from penstock.render import rbac

Manifest = dict[str, Any]
CLASSES = ("PriorityClass", "StorageClass")
MOST_NAMES = 3


@dataclasses.dataclass(frozen=True)
class Uses:
    """Uses by others of objects that are to be removed."""

    cluster: kubeadmin.Cluster
    installed: Mapping[str, inventory.ObjectRecord]
    """All objects of the site."""
    leaving: Mapping[str, inventory.ObjectRecord]
    """Those that are to be removed."""

    def reason(self, record: inventory.ObjectRecord) -> str:
        """Why the object must stay; empty if it may be removed."""
        kind, name = record.manifest["kind"], record.manifest["metadata"]["name"]
        managers = self._seen("applied by others, too:", lambda: self._other_managers(record.manifest))
        if managers or kind not in ("Namespace", "ServiceAccount", "ClusterRole", *CLASSES):
            return managers
        if kind == "ClusterRole":
            return self._seen("bound to it:", lambda: [each for each, role in self._others if role == name])
        if kind in CLASSES:
            return self._seen("other sites may use it:", lambda: [each for each, _ in self._other_sites()])
        home = record.manifest["metadata"].get("namespace", name)
        if kind == "Namespace" and not record.existed and self._has_pods[name]:
            return "pods are in it"
        return self._seen("used by", lambda: [each for each, homes in self._other_sites() if home in homes])

    def _other_managers(self, manifest: Manifest) -> list[str]:
        """Other sites that have applied the object and still have a binding, so are not uninstalled."""
        live = self.cluster.get(manifest) or {"metadata": {}}
        found = {str(each.get("manager")) for each in live["metadata"].get("managedFields") or ()}
        prefix = f"{kubeadmin.MANAGER}-"
        sites = {
            name.removeprefix(prefix) for name in found - {self.cluster.manager} if name.startswith(prefix)
        }
        there = {each["metadata"]["name"] for each in self._cluster_bindings} if sites else set()
        return sorted(f"{prefix}{name}" for name in sites if f"{rbac.ROLE}-{name}" in there)

    @functools.cached_property
    def _has_pods(self) -> dict[str, bool]:
        """Whether pods are in the namespaces that are to be removed."""
        made = [each.manifest for each in self.leaving.values() if not each.existed]
        names = [each["metadata"]["name"] for each in made if each["kind"] == "Namespace"]
        return {name: bool(self.cluster.items(kinds.PODS, types.Object, namespace=name)) for name in names}

    def _seen(self, how: str, look: Callable[[], list[str]]) -> str:
        try:
            return _some(how, look())
        except errors.KubeNotAllowed as error:
            return f"cannot find out whether others use it ({error.message})"

    def _other_sites(self) -> Iterator[tuple[str, set[str]]]:
        """Bindings of other penstockds, with the namespaces of their service accounts."""
        for each in self._cluster_bindings:
            if each["roleRef"]["name"].startswith(rbac.ROLE):
                homes = {str(subject.get("namespace")) for subject in each.get("subjects") or ()}
                yield f"ClusterRoleBinding {each['metadata']['name']}", homes

    @functools.cached_property
    def _cluster_bindings(self) -> list[Manifest]:
        """ClusterRoleBindings that are not ours."""
        kind = kinds.CLUSTER_ROLE_BINDINGS
        found = self.cluster.items(kind, dict)
        return [each for each in found if kind.path(name=each["metadata"]["name"]) not in self.installed]

    @functools.cached_property
    def _others(self) -> list[tuple[str, str]]:
        """All bindings that are not ours, with their ClusterRoles."""
        found = [
            (f"ClusterRoleBinding {x['metadata']['name']}", x["roleRef"]) for x in self._cluster_bindings
        ]
        for each in self.cluster.items(kinds.ROLE_BINDINGS, dict):
            home, name = each["metadata"]["namespace"], each["metadata"]["name"]
            is_ours = kinds.ROLE_BINDINGS.path(namespace=home, name=name) in self.installed
            if not is_ours and self._has_pods.get(home, True):
                found.append((f"RoleBinding {home}/{name}", each["roleRef"]))
        return [(name, role["name"]) for name, role in found if role["kind"] == "ClusterRole"]


def _some(how: str, names: list[str]) -> str:
    return f"{how} {wording.some(names, MOST_NAMES)}" if names else ""


def used(
    cluster: kubeadmin.Cluster,
    made: Mapping[str, inventory.ObjectRecord],
    installed: Mapping[str, inventory.ObjectRecord],
) -> set[str]:
    """Paths of objects that we were to create and that others use by now."""
    uses = Uses(cluster, {**installed, **made}, made)
    return {path for path, record in made.items() if uses.reason(record)}
