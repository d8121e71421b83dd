"""Every object that a site file can ask for is one that the API server takes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tests.install import sites

from penstock.install import kubeadmin
from penstock.kube import kubeconfig
from penstock.site import kubeobjects
from penstock_lab import testing

EVERYTHING = (
    ("penstockd:\n", "penstockd:\n  run: deployment\n"),
    ("registry:\n", "registry:\n  prepull: true\n  pull_secrets: [pull]\n"),
    ("  path: /nas\n", "  path: /nas\n  claim: nas\n"),
    ("pod_security: privileged\n", "pod_security: baseline\n  namespace: penstock-try\n"),
    ("    network: host\n", ""),  # which that level refuses
    ("user-{user}", "penstock-try-{user}"),
)
PROVISIONED = (("  claim: nas\n", "  claim: nas\n  provisioner: example.org/nfs\n"),)


def manifests(*replacements: tuple[str, str]) -> tuple[dict[str, Any], ...]:
    site = sites.site(*EVERYTHING, *replacements)
    return kubeobjects.all_objects(site, sites.known(site).groups)


@contextlib.contextmanager
def namespaces(cluster: kubeadmin.Cluster, made: tuple[dict[str, Any], ...]) -> Iterator[None]:
    """The namespaces of these objects, for a while."""
    found = [each for each in made if each["kind"] == "Namespace"]
    for each in found:
        cluster.apply(each)
    try:
        yield
    finally:
        for each in found:
            cluster.delete(each)


def test_api_accepts_every_manifest(lab: testing.RunningLab) -> None:
    """By a server-side dry run: only the namespaces are created."""
    cluster = kubeadmin.Cluster(kubeconfig.load(lab.place.admin_kubeconfig))
    made = (*manifests(), *manifests(*PROVISIONED))
    with namespaces(cluster, made):
        for each in made:
            answer = cluster.apply(each, dry_run=True)
            assert answer["metadata"]["name"] == each["metadata"]["name"]
    kinds = {each["kind"] for each in made}
    assert {"PersistentVolume", "StorageClass", "DaemonSet", "Deployment", "LimitRange"} <= kinds
    storage = next(each for each in made if each["kind"] == "StorageClass")
    assert cluster.get(storage) is None, "a dry run makes nothing"
