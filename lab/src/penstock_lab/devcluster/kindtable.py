"""The kinds that the API serves: a table, plus those of custom resource definitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock_lab.devcluster.statuses import Json


@dataclass(frozen=True, slots=True)
class Kind:
    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    builtin: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name in messages and quotas, such as pods or deployments.apps."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def resource(self) -> tuple[str, str]:
        """Identifies the stored objects, which all versions of a kind share."""
        return self.group, self.plural

    @property
    def base_path(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


_ST: Final = ("status",)
_CRD: Final = "customresourcedefinitions"
_RBAC: Final = "rbac.authorization.k8s.io"
PODS: Final = Kind("", "v1", "Pod", "pods", True, ("po",), ("status", "log", "binding", "eviction"))
NODES: Final = Kind("", "v1", "Node", "nodes", False, ("no",), _ST)
NAMESPACES: Final = Kind("", "v1", "Namespace", "namespaces", False, ("ns",), ("status", "finalize"))
SECRETS: Final = Kind("", "v1", "Secret", "secrets")
CONFIGMAPS: Final = Kind("", "v1", "ConfigMap", "configmaps", True, ("cm",))
EVENTS: Final = Kind("", "v1", "Event", "events", True, ("ev",))
QUOTAS: Final = Kind("", "v1", "ResourceQuota", "resourcequotas", True, ("quota",), _ST)
PRIORITIES: Final = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, ("pc",))
DEFINITIONS: Final = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", _CRD, False, ("crd", "crds"), _ST
)
TABLE: Final[tuple[Kind, ...]] = (
    *(PODS, NODES, NAMESPACES, SECRETS, CONFIGMAPS, EVENTS, QUOTAS),
    Kind("", "v1", "Service", "services", True, ("svc",), _ST),
    Kind("", "v1", "ServiceAccount", "serviceaccounts", True, ("sa",)),
    Kind("", "v1", "PersistentVolume", "persistentvolumes", False, ("pv",), _ST),
    Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, ("pvc",), _ST),
    Kind("", "v1", "LimitRange", "limitranges", True, ("limits",)),
    Kind("", "v1", "Endpoints", "endpoints", True, ("ep",)),
    Kind("apps", "v1", "DaemonSet", "daemonsets", True, ("ds",), _ST),
    Kind("apps", "v1", "Deployment", "deployments", True, ("deploy",), _ST),
    Kind("apps", "v1", "ReplicaSet", "replicasets", True, ("rs",), _ST),
    Kind("apps", "v1", "StatefulSet", "statefulsets", True, ("sts",), _ST),
    Kind("batch", "v1", "Job", "jobs", True, (), _ST),
    Kind("batch", "v1", "CronJob", "cronjobs", True, ("cj",), _ST),
    PRIORITIES,
    Kind("coordination.k8s.io", "v1", "Lease", "leases"),
    Kind(_RBAC, "v1", "Role", "roles"),
    Kind(_RBAC, "v1", "RoleBinding", "rolebindings"),
    Kind(_RBAC, "v1", "ClusterRole", "clusterroles", False),
    Kind(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", False),
    Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", True, ("netpol",)),
    Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", False, ("sc",)),
    Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, ("pdb",), _ST),
    DEFINITIONS,
)


class Registry(dict[tuple[str, str, str], Kind]):
    """The served kinds by group, version and plural."""

    def __init__(self) -> None:
        super().__init__({(kind.group, kind.version, kind.plural): kind for kind in TABLE})

    def define(self, definition: Json) -> None:
        """Serve the kinds of a custom resource definition."""
        self.update({(kind.group, kind.version, kind.plural): kind for kind in described(definition)})


def described(definition: Json) -> Iterator[Kind]:
    """The kinds of a custom resource definition, one per served version."""
    spec, names = definition["spec"], definition["spec"]["names"]
    for version in spec["versions"]:
        if version.get("served", True):
            parts = tuple(name for name in _ST if name in (version.get("subresources") or {}))
            short, namespaced = tuple(names.get("shortNames") or ()), spec.get("scope") != "Cluster"
            place = (spec["group"], version["name"], names["kind"], names["plural"])
            yield Kind(*place, namespaced, short, parts, builtin=False)
