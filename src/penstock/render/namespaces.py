"""A user's namespace and what stands around it: how much it may hold, and who may connect to its pods.

The pods of a job talk to each other, so connections within the namespace stay open; nobody else's pods come
in. What goes out is not restricted: jobs download data and report to services.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock import wellknown
from penstock.model import launches

NAME = "penstock"
NETWORK_POLICIES = "networkpolicies.networking.k8s.io"
Manifest = dict[str, Any]


def render_namespace(name: str, owner: launches.Owner) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {wellknown.LABEL_USER_ID: str(owner.uid)}},
    }


def render_quota(limits: Mapping[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": NAME},
        "spec": {"hard": dict(limits)},
    }


def render_network_policy() -> Manifest:
    """Connections from the same namespace only."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {}}]}],
        },
    }
