"""Faults on the Kubernetes side of a lab, and their repair, for `ailments`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from tests.e2e.ailing import (
    NODE,
    Ailment,
    Lab,
    site_of,
)

from penstock import wellknown
from penstock.site import crosschecks, schema


def node_has(amounts: dict[str, str]) -> Ailment:
    """A node with other allocatable amounts than in Slurm."""

    @contextlib.contextmanager
    def ailment(lab: Lab) -> Iterator[schema.Site]:
        before = _allocatable(lab)
        _patch_node(lab, {**before, **amounts})
        try:
            yield site_of(lab)
        finally:
            _patch_node(lab, before)

    return ailment


def _allocatable(lab: Lab) -> dict[str, str]:
    node = json.loads(lab.run(("kubectl", "get", "node", NODE, "-o", "json")).stdout)
    found: dict[str, str] = node["status"]["allocatable"]
    return found


def _patch_node(lab: Lab, allocatable: dict[str, str]) -> None:
    patch = json.dumps({"status": {"allocatable": allocatable}})
    lab.run(("kubectl", "patch", "node", NODE, "--subresource=status", "--type=merge", "--patch", patch))


def pod(*, name: str, labels: dict[str, str], cpu: str) -> Ailment:
    """A pod that Penstock did not create."""

    @contextlib.contextmanager
    def ailment(lab: Lab) -> Iterator[schema.Site]:
        container = {
            "name": "job",
            "image": "lab/host-userland:1",
            "command": ["/bin/sleep", "600"],
            "resources": {"requests": {"cpu": cpu}},
        }
        cluster = {wellknown.LABEL_CLUSTER: site_of(lab).cluster} if labels else {}
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": labels | cluster},
            "spec": {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 0},
        }
        lab.run(("kubectl", "create", "-f", "-"), stdin=json.dumps(manifest))
        try:
            yield site_of(lab)
        finally:
            delete = ("kubectl", "delete", "pod", name, "--namespace=default", "--ignore-not-found", "--now")
            lab.run(delete)

    return ailment


JOB_LABELS = {
    wellknown.LABEL_APP: wellknown.APP_VALUE,
    wellknown.LABEL_JOB_ID: "3999999",
    wellknown.LABEL_RESTART: "0",
}


@contextlib.contextmanager
def strict_namespace(lab: Lab) -> Iterator[schema.Site]:
    """A user's namespace that forbids hostPath."""
    labels = {wellknown.LABEL_USER_ID: "4242", "pod-security.kubernetes.io/enforce": "restricted"}
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "user-strict", "labels": labels},
    }
    lab.run(("kubectl", "create", "-f", "-"), stdin=json.dumps(manifest))
    try:
        yield site_of(lab)
    finally:
        lab.run(("kubectl", "delete", "namespace", "user-strict", "--wait=false"))


@contextlib.contextmanager
def node_deleted(lab: Lab) -> Iterator[schema.Site]:
    """A node that Slurm still has was deleted in Kubernetes."""
    node = json.loads(lab.run(("kubectl", "get", "node", NODE, "-o", "json")).stdout)
    lab.run(("kubectl", "delete", "node", NODE))
    try:
        yield site_of(lab)
    finally:
        metadata = {"name": NODE, "labels": node["metadata"]["labels"]}
        fresh = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": node.get("spec", {})}
        lab.run(("kubectl", "create", "-f", "-"), stdin=json.dumps(fresh), check=False)
        patch = json.dumps({"status": node["status"]})
        argv = ("kubectl", "patch", "node", NODE, "--subresource=status", "--type=merge", "--patch", patch)
        lab.run(argv)


@contextlib.contextmanager
def label_gone(lab: Lab) -> Iterator[schema.Site]:
    """A node without the label of its GPU type."""
    names = sorted(crosschecks.nodes_of(site_of(lab).node_groups["workers"]))
    lab.run(("kubectl", "label", "node", *names, "gpu=a100"))
    site = site_of(
        lab, gpus={"a100": {"labels": {"gpu": "a100"}}}, node_groups={"workers": {"gpu_type": "a100"}}
    )
    lab.run(("kubectl", "label", "node", NODE, "gpu-"))
    try:
        yield site
    finally:
        lab.run(("kubectl", "label", "node", *names, "gpu-"))


def _create(lab: Lab, version: str, kind: str, metadata: dict[str, str], **fields: Any) -> None:
    manifest = {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}
    lab.run(("kubectl", "create", "-f", "-"), stdin=json.dumps(manifest))


@contextlib.contextmanager
def quota_changed(lab: Lab) -> Iterator[schema.Site]:
    """A user's quota was changed by hand."""
    home = "user-quota-test"
    lab.run(("kubectl", "create", "namespace", home))
    _create(
        lab, "v1", "ResourceQuota", {"name": "penstock", "namespace": home}, spec={"hard": {"pods": "500"}}
    )
    try:
        yield site_of(lab, accounts={"research": {"users": {"quota-test": {"quota": {"pods": 5}}}}})
    finally:
        lab.run(("kubectl", "delete", "namespace", home, "--wait=false"))


@contextlib.contextmanager
def class_deleted(lab: Lab) -> Iterator[schema.Site]:
    """The PriorityClass of a partition was deleted."""
    _create(lab, "scheduling.k8s.io/v1", "PriorityClass", {"name": "vanished"}, value=1)
    lab.run(("kubectl", "delete", "priorityclass", "vanished"))
    yield site_of(
        lab, priority_classes={"vanished": {"value": 1}}, partitions={"gpu": {"priority_class": "vanished"}}
    )
