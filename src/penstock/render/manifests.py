"""Kubernetes objects that a site needs besides pods: pure functions from a few words to manifests.

Every object carries our label, so that whatever installs them also knows what to remove.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock import wellknown
from penstock.render import namespaces

Manifest = dict[str, Any]
PREPULL_PAUSE = ["/bin/sh", "-c", "while :; do sleep 3600; done"]


def labels() -> dict[str, str]:
    """What tells our objects from everybody else's."""
    return {wellknown.LABEL_MANAGED_BY: wellknown.MANAGED_BY_VALUE}


def meta(name: str, *, namespace: str = "", **more: str) -> Manifest:
    """metadata with our label, and more of them."""
    found: Manifest = {"name": name, "labels": labels() | more}
    return found | ({"namespace": namespace} if namespace else {})


def namespace(name: str, *, pod_security: str = "") -> Manifest:
    """A namespace, with the Pod Security level that its pods are held to."""
    metadata = meta(name, **pod_security_labels(pod_security))
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def pod_security_labels(level: str) -> dict[str, str]:
    """By which Pod Security admission holds a namespace's pods to the level; none without one."""
    return {f"pod-security.kubernetes.io/{what}": level for what in ("enforce", "warn") if level}


def service_account(name: str, namespace: str) -> Manifest:
    """An identity in the cluster."""
    metadata = meta(name, namespace=namespace)
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def token_secret(name: str, namespace: str) -> Manifest:
    """A Secret that the cluster fills with a lasting token of the account."""
    metadata = meta(name, namespace=namespace)
    metadata["annotations"] = {"kubernetes.io/service-account.name": name}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": metadata,
    }


def quota(namespace: str, hard: Mapping[str, str]) -> Manifest:
    """What all pods of a namespace may ask for together."""
    return namespaces.render_quota(hard) | {"metadata": meta(namespaces.NAME, namespace=namespace)}


def limit_range(namespace: str) -> Manifest:
    """What a container gets that does not say: a quota refuses pods that ask for nothing."""
    default = {"cpu": "100m", "memory": "128Mi"}
    limit = {"type": "Container", "default": dict(default), "defaultRequest": default}
    metadata = meta(namespaces.NAME, namespace=namespace)
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": [limit]}}


def network_policy(namespace: str) -> Manifest:
    """Nobody from elsewhere reaches the pods; those of one namespace reach each other."""
    return namespaces.render_network_policy() | {"metadata": meta(namespaces.NAME, namespace=namespace)}


def priority_class(name: str, *, value: int, preempts: bool) -> Manifest:
    """A PriorityClass."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": meta(name),
        "value": value,
        "globalDefault": False,
        "preemptionPolicy": "PreemptLowerPriority" if preempts else "Never",
        "description": "jobs of Slurm",
    }


def storage_class(name: str, *, provisioner: str) -> Manifest:
    """A StorageClass for the shared folder."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": meta(name),
        "provisioner": provisioner,
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "Immediate",
    }


def volume(name: str, *, source: Manifest, size: str, storage_class: str, claim: str, home: str) -> Manifest:
    """The shared folder as a volume that waits for one claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": meta(name),
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": storage_class,
            "claimRef": {"namespace": home, "name": claim},
            **source,
        },
    }


def claim(name: str, *, namespace: str, size: str, storage_class: str, volume: str) -> Manifest:
    """The claim through which a namespace's pods mount it."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta(name, namespace=namespace),
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": size}},
            "storageClassName": storage_class,
            **({"volumeName": volume} if volume else {}),
        },
    }


def prepull(
    partition: str, *, namespace: str, image: str, nodes: tuple[str, ...], secrets: tuple[str, ...]
) -> Manifest:
    """Keeps a partition's default image on its nodes: a pod that does nothing but have it."""
    app = {"app": f"penstock-prepull-{partition}"}
    on_nodes = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [on_nodes]}]}
    container = {
        "name": "image",
        "image": image,
        "command": PREPULL_PAUSE,
        "resources": {"requests": {"cpu": "1m", "memory": "4Mi"}, "limits": {"memory": "16Mi"}},
    }
    spec: Manifest = {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "automountServiceAccountToken": False,
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
    }
    if secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in secrets]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": meta(f"penstock-prepull-{partition.lower()}", namespace=namespace),
        "spec": {
            "selector": {"matchLabels": app},
            "template": {"metadata": {"labels": app | labels()}, "spec": spec},
        },
    }
