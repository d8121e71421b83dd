"""What penstockd may do in a cluster, said once: whatever installs it renders its role from this table.

It sees all pods and nodes, because room on a node depends on everybody's pods. It makes namespaces (each with
its quota and NetworkPolicy), pods and Secrets for jobs, binds pods to the nodes that Slurm chose, sends
signals into them, fetches their output and deletes them, and looks up why one does not start. It never
reads a Secret, changes no object that exists, and cannot grant anything to anybody. A command over a
WebSocket is a GET that newer API servers count as a create, too.
"""

from __future__ import annotations

from typing import Any

ROLE = "penstockd"
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
"""Resource, with its API group unless it is the core one → verbs."""

Manifest = dict[str, Any]


def render_role(*, name: str = ROLE, without: tuple[str, str] = ("", "")) -> Manifest:
    """penstockd's ClusterRole; `without` leaves out one pair of resource and verb: is it needed?"""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [rule for resource, verbs in RULES if (rule := _rule(resource, verbs, without))["verbs"]],
    }


def _rule(resource: str, verbs: tuple[str, ...], without: tuple[str, str]) -> Manifest:
    kept = [verb for verb in verbs if (resource, verb) != without]
    plural, _, group = resource.partition(".")
    return {"apiGroups": [group], "resources": [plural], "verbs": kept}


def render_binding(subject: Manifest, *, role: str = ROLE) -> Manifest:
    """Gives a role to one subject: a service account, or a user of another name."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


USER_ROLE = "penstock-user"


def render_user_role(*, name: str = USER_ROLE) -> Manifest:
    """What the owner of a namespace may do there: look at his pods, their output and what became of them."""
    resources = ["pods", "pods/log", "events", "resourcequotas"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": resources, "verbs": ["get", "list", "watch"]}],
    }


def render_user_binding(subject: Manifest) -> Manifest:
    """Gives that role to one subject, in the namespace where this is put."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": USER_ROLE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER_ROLE},
        "subjects": [subject],
    }


def user(name: str) -> Manifest:
    """A subject that logs in with a certificate or a static token."""
    return {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}


def service_account(name: str, namespace: str) -> Manifest:
    """A subject that logs in with a token of the cluster."""
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def pairs() -> list[tuple[str, str]]:
    """Every resource with every verb, one by one."""
    return [(resource, verb) for resource, verbs in RULES for verb in verbs]
