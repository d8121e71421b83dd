"""Kubernetes objects that a site needs besides pods.

Every object carries our label, so the installer also knows what to remove.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock import wellknown
from penstock.render import namespaces

Manifest = dict[str, Any]
PREPULL_PAUSE = ["/bin/sh", "-c", "while :; do sleep 3600; done"]


def labels() -> dict[str, str]:
    """The label of everything that Penstock installs."""
    return {wellknown.LABEL_MANAGED_BY: wellknown.MANAGED_BY_VALUE}


def meta(name: str, *, namespace: str = "", **more: str) -> Manifest:
    """metadata with our label and further ones."""
    found: Manifest = {"name": name, "labels": labels() | more}
    return found | ({"namespace": namespace} if namespace else {})


def _object(kind: str, metadata: Manifest, *, api: str = "v1", **parts: Any) -> Manifest:
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **parts}


def namespace(name: str, *, pod_security: str = "") -> Manifest:
    """A namespace with a Pod Security level."""
    return _object("Namespace", meta(name, **pod_security_labels(pod_security)))


def pod_security_labels(level: str) -> dict[str, str]:
    """Pod Security admission labels for the level; none if it is empty."""
    return {f"pod-security.kubernetes.io/{what}": level for what in ("enforce", "warn") if level}


def service_account(name: str, namespace: str) -> Manifest:
    return _object("ServiceAccount", meta(name, namespace=namespace))


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
    return namespaces.render_quota(hard) | {"metadata": meta(namespaces.NAME, namespace=namespace)}


def limit_range(namespace: str) -> Manifest:
    """Defaults for containers without requests, which a quota would refuse."""
    default = {"cpu": "100m", "memory": "128Mi"}
    limit = {"type": "Container", "default": dict(default), "defaultRequest": default}
    return _object("LimitRange", meta(namespaces.NAME, namespace=namespace), spec={"limits": [limit]})


def network_policy(namespace: str) -> Manifest:
    """Only pods of the same namespace may connect to its pods."""
    return namespaces.render_network_policy() | {"metadata": meta(namespaces.NAME, namespace=namespace)}


def priority_class(name: str, *, value: int, preempts: bool) -> Manifest:
    return _object(
        "PriorityClass",
        meta(name),
        api="scheduling.k8s.io/v1",
        value=value,
        globalDefault=False,
        preemptionPolicy="PreemptLowerPriority" if preempts else "Never",
        description="jobs of Slurm",
    )


def storage_class(name: str, *, provisioner: str) -> Manifest:
    """For the shared folder."""
    return _object(
        "StorageClass",
        meta(name),
        api="storage.k8s.io/v1",
        provisioner=provisioner,
        reclaimPolicy="Retain",
        volumeBindingMode="Immediate",
    )


def volume(name: str, *, source: Manifest, size: str, storage_class: str, claim: str, home: str) -> Manifest:
    """The shared folder as a PersistentVolume, reserved for one claim."""
    return _object(
        "PersistentVolume",
        meta(name),
        spec={
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": storage_class,
            "claimRef": {"namespace": home, "name": claim},
            **source,
        },
    )


def claim(name: str, *, namespace: str, size: str, storage_class: str, volume: str) -> Manifest:
    """The claim by which a namespace's pods mount it."""
    return _object(
        "PersistentVolumeClaim",
        meta(name, namespace=namespace),
        spec={
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": size}},
            "storageClassName": storage_class,
            **({"volumeName": volume} if volume else {}),
        },
    )


def prepull(
    partition: str, *, namespace: str, image: str, nodes: tuple[str, ...], secrets: tuple[str, ...]
) -> Manifest:
    """Keeps a partition's default image on its nodes with idle pods that use it."""
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
    return _object(
        "DaemonSet",
        meta(f"penstock-prepull-{partition.lower()}", namespace=namespace),
        api="apps/v1",
        spec={
            "selector": {"matchLabels": app},
            "template": {"metadata": {"labels": app | labels()}, "spec": spec},
        },
    )
