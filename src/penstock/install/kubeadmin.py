"""Blocking access to Kubernetes for commands: any object by its manifest."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from penstock import errors, wellknown
from penstock.kube import client, codec, incluster, kinds, kubeconfig, lists, podview, types
from penstock.site import nodegroups
from penstock.site.schema import Site

DELETION_SECONDS = 120.0
POLL_SECONDS = 0.3
MANAGER = "penstock"
IN_CLUSTER = "in-cluster"
Manifest = dict[str, Any]
T = TypeVar("T")


class Cluster:
    def __init__(
        self,
        access: kubeconfig.Access,
        *,
        manager: str = MANAGER,
        origin: str = "its kubeconfig",
        renew: str = "",
    ) -> None:
        """`origin` names the source of the credentials, `renew` says how to get new ones."""
        self.manager = manager
        """The field manager of what we apply."""
        self._access = dataclasses.replace(access, origin=origin, renew=renew)

    def ask(self, question: Callable[[client.KubeClient], Awaitable[T]]) -> T:
        return client.ask(self._access, question)

    def items(
        self, kind: kinds.Kind, struct: type[T], *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> tuple[T, ...]:
        """All objects of a kind, or those that match the selectors."""
        listed = self.ask(
            lambda kube: lists.everything(
                kube, kind, struct, namespace=namespace, labels=labels, fields=fields
            )
        )
        return listed.items

    def get(self, manifest: Manifest) -> Manifest | None:
        """The live object with this kind and name."""
        kind, home, name = _place(manifest)
        try:
            answer = self.ask(lambda kube: kube.get(kind, namespace=home, name=name))
        except errors.KubeNotFound:
            return None
        found = codec.decode(answer, dict)
        if not isinstance(found.get("metadata"), dict):
            raise errors.KubeUnavailable(f"the answer of the Kubernetes API is not a {manifest['kind']}")
        return found

    def get_settled(self, manifest: Manifest) -> Manifest | None:
        """The live object, after waiting for a deletion in progress: until then it cannot be created anew."""
        deadline = time.monotonic() + DELETION_SECONDS
        while True:
            live = self.get(manifest)
            if live is None or not live["metadata"].get("deletionTimestamp"):
                return live
            if time.monotonic() > deadline:
                raise errors.InstallError(
                    f"deletion of {manifest['kind']} {manifest['metadata']['name']} takes too long",
                    hint="Look at what is in it, and try again.",
                )
            time.sleep(POLL_SECONDS)

    def create(self, manifest: Manifest) -> Manifest:
        kind, home = kinds.of(manifest), manifest.get("metadata", {}).get("namespace", "")
        answer = self.ask(lambda kube: kube.create(kind, manifest, namespace=home))
        return codec.decode(answer, dict)

    def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Server-side apply. A binding's role is immutable: with another role it is deleted and recreated."""
        if "roleRef" in manifest and self._has_another_role(manifest):
            if dry_run:
                return manifest  # the API can check it only after the old one is gone
            self.delete(manifest)
        kind, home, _ = _place(manifest)
        answer = self.ask(
            lambda kube: kube.apply(
                kind, manifest, namespace=home, manager=self.manager, force=True, dry_run=dry_run
            )
        )
        return codec.decode(answer, dict)

    def _has_another_role(self, manifest: Manifest) -> bool:
        live = self.get(manifest)
        return live is not None and live.get("roleRef") != manifest["roleRef"]

    def delete(self, manifest: Manifest) -> bool:
        """False if it did not exist."""
        kind, home, name = _place(manifest)
        try:
            self.ask(lambda kube: kube.delete(kind, namespace=home, name=name, uid=None))
        except errors.KubeNotFound:
            return False
        return True


def _place(manifest: Manifest) -> tuple[kinds.Kind, str, str]:
    """Kind, namespace and name."""
    metadata = manifest["metadata"]
    return kinds.of(manifest), metadata.get("namespace", ""), metadata["name"]


def path_of(manifest: Manifest) -> str:
    """API path."""
    kind, home, name = _place(manifest)
    return kind.path(namespace=home, name=name)


def manager(site: Site) -> str:
    """One field manager per site: giving up its fields keeps those of another site."""
    return f"{MANAGER}-{site.cluster}"


def admin_kubeconfig(site: Site) -> Path:
    """The site's kubeconfig for administrators, or $KUBECONFIG if the caller may not read that."""
    own = os.environ.get(wellknown.ENV_KUBECONFIG, "")
    named = site.kubernetes.admin_kubeconfig or own
    if own and os.geteuid() != 0 and not os.access(named, os.R_OK):
        named = own
    return Path(named.partition(":")[0]) if named else Path.home() / ".kube" / "config"


def admin(site: Site) -> Cluster:
    """The cluster with the administrator's permissions, or the pod's in a pod without a kubeconfig."""
    path = admin_kubeconfig(site)
    is_named = site.kubernetes.admin_kubeconfig or os.environ.get(wellknown.ENV_KUBECONFIG)
    if site.kubernetes.access == IN_CLUSTER and not is_named and not path.exists():
        return as_penstockd(site)
    renew = f"Get new credentials: `kubectl --kubeconfig {path} get nodes` must work."
    access = kubeconfig.load(path, context=site.kubernetes.context)
    return Cluster(access, manager=manager(site), origin=str(path), renew=renew)


def as_penstockd(site: Site) -> Cluster:
    """The cluster with penstockd's permissions."""
    if site.kubernetes.access == IN_CLUSTER:
        folder = site.kubernetes.service_account_dir
        renew = "Restart the pod: it gets a new token."
        return Cluster(incluster.load(Path(folder)), manager=manager(site), origin=folder, renew=renew)
    path = site.kubernetes.kubeconfig
    renew = f"Remove {path} and run `penstock apply`, which creates a new one; then restart penstockd."
    return Cluster(kubeconfig.load(Path(path)), manager=manager(site), origin=path, renew=renew)


def members(site: Site) -> tuple[nodegroups.Member, ...]:
    return members_of(admin(site))


def members_of(cluster: Cluster) -> tuple[nodegroups.Member, ...]:
    return tuple(
        nodegroups.Member(
            name=node.metadata.name,
            labels=node.metadata.labels,
            allocatable=podview.amount(node.status.allocatable),
        )
        for node in cluster.items(kinds.NODES, types.Node)
    )
