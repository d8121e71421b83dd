"""penstockd's rights in a cluster, in one table from which every installation renders its role.

It sees all pods and nodes, because room on a node depends on all pods. It creates namespaces (each with
quota and NetworkPolicy), pods and Secrets for jobs, binds pods to the nodes that Slurm chose, sends signals
into them, fetches their output, deletes them, and reads events. It never reads a Secret, changes no
existing object, and cannot grant rights. A command over a WebSocket is a GET that newer API servers also
check as a create.
"""

from __future__ import annotations

from typing import Any

ROLE = "penstockd"
_GROUP = "rbac.authorization.k8s.io"
RULES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("pods", ("get", "list", "watch", "create", "delete")),
    ("pods/binding", ("create",)),
    ("pods/exec", ("get", "create")),
    ("pods/log", ("get",)),
    ("secrets", ("create",)),
    ("nodes", ("get", "list", "watch")),
    ("namespaces", ("create",)),
    ("resourcequotas", ("create",)),
    ("networkpolicies.networking.k8s.io", ("create",)),
    ("events", ("list",)),
)
"""Resource, with its API group unless it is core, and verbs."""

Manifest = dict[str, Any]


def render_role(*, name: str = ROLE, without: tuple[str, str] = ("", "")) -> Manifest:
    """penstockd's ClusterRole; tests leave out one pair of resource and verb by `without`."""
    rules = [rule for resource, verbs in RULES if (rule := _rule(resource, verbs, without))["verbs"]]
    return _cluster_role(name, rules)


def _cluster_role(name: str, rules: list[Manifest]) -> Manifest:
    return {"apiVersion": f"{_GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}


def _rule(resource: str, verbs: tuple[str, ...], without: tuple[str, str]) -> Manifest:
    kept = [verb for verb in verbs if (resource, verb) != without]
    plural, _, group = resource.partition(".")
    return {"apiGroups": [group], "resources": [plural], "verbs": kept}


def render_binding(subject: Manifest, *, role: str = ROLE) -> Manifest:
    """Binds a role to a service account, or to a user."""
    return _binding("ClusterRoleBinding", role, subject)


def _binding(kind: str, role: str, subject: Manifest) -> Manifest:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": kind,
        "metadata": {"name": role},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


USER_ROLE = "penstock-user"


def render_user_role(*, name: str = USER_ROLE) -> Manifest:
    """Rights of a namespace's owner there: to view pods, their output and events."""
    resources = ["pods", "pods/log", "events", "resourcequotas"]
    rules = [{"apiGroups": [""], "resources": resources, "verbs": ["get", "list", "watch"]}]
    return _cluster_role(name, rules)


def render_user_binding(subject: Manifest) -> Manifest:
    """Binds that role in one namespace."""
    return _binding("RoleBinding", USER_ROLE, subject)


def user(name: str) -> Manifest:
    """A subject with a certificate or a static token."""
    return {"kind": "User", "apiGroup": _GROUP, "name": name}


def service_account(name: str, namespace: str) -> Manifest:
    """A subject with a token of the cluster."""
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def pairs() -> list[tuple[str, str]]:
    """Every pair of resource and verb."""
    return [(resource, verb) for resource, verbs in RULES for verb in verbs]
