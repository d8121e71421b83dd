"""The namespace of a user or an account and what stands around it: how much it may hold, and who may connect
to its pods.

The pods of a job talk to each other, so connections within the namespace stay open; nobody else's pods come
in. In an account's namespace that is everybody who submits to the account. What goes out is not restricted:
jobs download data and report to services.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock import wellknown
from penstock.model import launches, namespacepattern
from penstock.model.podpolicy import PodPolicy
from penstock.render import manifests, pods

NAME = "penstock"
Manifest = dict[str, Any]


def render_namespace(owner: launches.Owner, policy: PodPolicy) -> Manifest:
    """Labelled with whose it is: the user's, or when it is shared, the account's."""
    shared = namespacepattern.is_shared(policy.namespace_pattern)
    account = {wellknown.LABEL_ACCOUNT: pods.label_of(owner.account)}
    whose = account if shared else {wellknown.LABEL_USER_ID: str(owner.uid)}
    labels = whose | manifests.pod_security_labels(policy.pod_security)
    metadata = {"name": namespacepattern.namespace_of(owner, policy), "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


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
