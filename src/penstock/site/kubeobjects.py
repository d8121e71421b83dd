"""Site → the Kubernetes objects it needs, in the order in which they can be created."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from penstock.render import deployments, manifests, rbac, searchpath
from penstock.site import clusters, policies, sitenamespaces
from penstock.site.parts import Quota
from penstock.site.schema import Site

Manifest = dict[str, Any]
ACCOUNT = "penstockd"


def all_objects(site: Site, groups: clusters.Groups) -> tuple[Manifest, ...]:
    return (
        *_own(site),
        *_classes(site),
        *itertools.chain.from_iterable(_home(site, *each) for each in sitenamespaces.all_homes(site).items()),
        *_images(site, groups),
        *_daemon(site),
    )


def _own(site: Site) -> Iterator[Manifest]:
    home = site.kubernetes.namespace
    is_daemon_there = site.penstockd.run == "deployment"
    yield manifests.namespace(home, pod_security="privileged" if is_daemon_there else "")
    yield manifests.service_account(ACCOUNT, home)
    own, users = (f"{name}-{site.cluster}" for name in (rbac.ROLE, rbac.USER_ROLE))
    binding = rbac.render_binding(rbac.service_account(ACCOUNT, home), role=own)
    for each in (rbac.render_role(name=own), rbac.render_user_role(name=users), binding):
        each["metadata"]["labels"] = manifests.labels()
        yield each


def _classes(site: Site) -> Iterator[Manifest]:
    for name, each in site.priority_classes.items():
        yield manifests.priority_class(name, value=each.value, preempts=each.preempts)
    if site.nas is not None and site.nas.provisioner:
        yield manifests.storage_class(site.nas.storage_class, provisioner=site.nas.provisioner)


def _home(site: Site, home: str, quota: Quota | None) -> Iterator[Manifest]:
    """The namespace of a user or an account, with its objects."""
    yield manifests.namespace(home, pod_security=site.kubernetes.pod_security)
    if quota is not None:
        yield manifests.quota(home, policies.hard(site, quota))
        yield manifests.limit_range(home)
    if site.kubernetes.network_policy:
        yield manifests.network_policy(home)
    nas = site.nas
    if nas is not None and nas.claim is not None:
        size, storage_class = nas.size, nas.storage_class
        volume = "" if nas.provisioner else f"penstock-{home}"
        if volume:
            source = {"hostPath": {"path": nas.path}}
            yield manifests.volume(
                volume, source=source, size=size, storage_class=storage_class, claim=nas.claim, home=home
            )
        yield manifests.claim(
            nas.claim, namespace=home, size=size, storage_class=storage_class, volume=volume
        )


def _images(site: Site, groups: clusters.Groups) -> Iterator[Manifest]:
    if not site.registry.prepull:
        return
    policy = policies.resolved(site)
    for name in policy.partitions:
        image = policy.image_in(name)
        nodes = tuple(node.name for group in site.partitions[name].nodes for node in groups.get(group, ()))
        if image and nodes:
            yield manifests.prepull(
                name,
                namespace=site.kubernetes.namespace,
                image=image,
                nodes=nodes,
                secrets=policy.image_pull_secrets,
            )


def _daemon(site: Site) -> Iterator[Manifest]:
    if site.penstockd.run != "deployment":
        return
    settings = site.penstockd
    written = [_folder(settings.socket), *((site.results.state_dir, site.nas.path) if site.nas else ())]
    read = [_folder(path) for path in (settings.config, site.slurm.conf, site.slurm.munge_socket)]
    yield deployments.render(
        deployments.Daemon(
            name=ACCOUNT,
            namespace=site.kubernetes.namespace,
            image=settings.image,
            command=(settings.program, "daemon", "--config", settings.config, "--user", site.slurm.user),
            node=settings.node or site.slurm.controller,
            folders=tuple(written),
            readable=(*read, *settings.host_paths),
            api=site.kubernetes.api or "",
            pull_secrets=site.registry.pull_secrets,
            path=searchpath.unless_usual(site.slurm.commands_dir),
        )
    )


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
