"""Kinds of objects and their API paths; everything that talks to the API names one of these.

A new kind needs a line here and nothing in the client; a custom resource's may be created where it is used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal

from penstock import errors

Sub = Literal["", "binding", "eviction", "exec", "log", "status", "token"]
"""Subresource, at the end of an object's path."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of one API version: `kind` in manifests, `plural` in paths."""

    group: str  # empty for the core API
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str = "", name: str = "", sub: Sub = "") -> str:
        """The object's path or, without a name, the collection's. ValueError for impossible paths."""
        if (namespace and not self.namespaced) or (name and self.namespaced and not namespace):
            raise ValueError(f"{self} are {'' if self.namespaced else 'not '}in namespaces")
        parts = [f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"]
        parts += ["namespaces", namespace] if namespace else []
        return "/".join([*parts, self.plural, *(part for part in (name, sub) if part)])

    def __str__(self) -> str:
        """As in kubectl and RBAC: pods, networkpolicies.networking.k8s.io."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_RBAC = "rbac.authorization.k8s.io"
_REVIEWS = "authorization.k8s.io"
PODS: Final = Kind("", "v1", "pods", "Pod")
NODES: Final = Kind("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES: Final = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
SECRETS: Final = Kind("", "v1", "secrets", "Secret")
EVENTS: Final = Kind("", "v1", "events", "Event")
RESOURCE_QUOTAS: Final = Kind("", "v1", "resourcequotas", "ResourceQuota")
LIMIT_RANGES: Final = Kind("", "v1", "limitranges", "LimitRange")
SERVICE_ACCOUNTS: Final = Kind("", "v1", "serviceaccounts", "ServiceAccount")
VOLUMES: Final = Kind("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
CLAIMS: Final = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
DAEMON_SETS: Final = Kind("apps", "v1", "daemonsets", "DaemonSet")
DEPLOYMENTS: Final = Kind("apps", "v1", "deployments", "Deployment")
LEASES: Final = Kind("coordination.k8s.io", "v1", "leases", "Lease")
NETWORK_POLICIES: Final = Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
ROLE_BINDINGS: Final = Kind(_RBAC, "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES: Final = Kind(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = Kind(
    _RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
PRIORITY_CLASSES: Final = Kind(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
STORAGE_CLASSES: Final = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
OWN_ACCESS_REVIEWS: Final = Kind(
    _REVIEWS, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
ACCESS_REVIEWS: Final = Kind(_REVIEWS, "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)

_BY_NAME: Final = {
    (each.api_version, each.kind): each for each in tuple(globals().values()) if isinstance(each, Kind)
}


def of(manifest: Mapping[str, Any]) -> Kind:
    """The kind of a manifest. UsageError if it is unknown here."""
    named = manifest["apiVersion"], manifest["kind"]
    if named not in _BY_NAME:
        raise errors.UsageError(f"unknown kind of object: {' '.join(named)}")
    return _BY_NAME[named]
