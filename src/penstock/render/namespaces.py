"""Namespaces of users or accounts, with their quota and NetworkPolicy.

Pods of a job talk to each other, so connections within a namespace are open; other pods cannot connect. An
account's namespace is shared by everybody who submits to the account. Egress is not restricted: jobs
download data and report to services.
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
    """Labelled with its user or, if it is shared, its account."""
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
    """Only connections from the same namespace."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": NAME},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": {}}]}]},
    }
