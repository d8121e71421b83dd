"""Site → penstockd's settings, and what `penstock validate` must know of the site."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, Literal

from penstock import wellknown
from penstock.model import cluster as model
from penstock.model import releases, siteview
from penstock.site import clusters, objects, slurmviews
from penstock.site.schema import Nas, Site
from penstock.site.words import mebibytes
from penstock.slurm import conffile


def penstockd(site: Site, *, slurm_uid: int) -> dict[str, Any]:
    """penstockd.json; what has penstockd's own default is left out."""
    bridged = clusters.bridged_partitions(site)
    optional = {
        "trusted_partitions": [name for name in bridged if site.partitions[name].mode == "trust"],
        "allowed_images": list(site.registry.allowed),
        "forbidden_directives": list(site.kubernetes.forbidden_directives),
        "image_pull_policy": site.registry.pull_policy,
        "image_pull_secrets": list(site.registry.pull_secrets),
        "priority_classes": _by_partition(site, "priority_class", prefix="partition/"),
        "gpu_resources": gpu_resources(site),
        "gpu_labels": {name: dict(gpu.labels) for name, gpu in site.gpus.items() if gpu.labels},
        "partition_images": _by_partition(site, "image"),
        "partition_tolerations": _tolerations(site),
        "partition_node_selectors": _by_partition(site, "node_selector"),
        "allowed_tolerations": _given(site, "allowed_tolerations"),
        "allowed_node_labels": _given(site, "allowed_node_labels"),
        "mount_sources": _mount_sources(site),
        "metrics_port": site.penstockd.metrics_port,
        "state_dir": site.results.state_dir if site.nas is not None else "",
        "results": f"{site.nas.path}/{site.nas.results}" if site.nas is not None else "",
        "namespace_quota": objects.hard(site, site.quota) if site.quota is not None else {},
    }
    if not site.kubernetes.network_policy:
        optional["isolate_namespaces"] = False
    return {
        "socket": site.penstockd.socket,
        **_access(site),
        "slurm_conf": site.slurm.conf,
        "hook_uids": [slurm_uid, 0],
        "bridged_partitions": list(bridged),
        "shared_mounts": list(shared_mounts(site)),
        "default_image": site.registry.default_image or "",
        "namespace_pattern": site.kubernetes.namespace_pattern,
        "reserved_namespaces": [site.kubernetes.namespace],
        "kill_wait": site.timeouts.kill_wait,
        "log_level": site.penstockd.log_level,
        "log_format": site.penstockd.log_format,
        "start_timeout": float(site.timeouts.start),
        **{key: value for key, value in optional.items() if value or value is False},
    }


def _access(site: Site) -> dict[str, str]:
    if site.kubernetes.access == "in-cluster":
        return {"kubeconfig": "", "service_account_dir": site.kubernetes.service_account_dir}
    return {"kubeconfig": site.kubernetes.kubeconfig}


def intake(site: Site, nas: Nas, *, release: releases.Release) -> dict[str, Any]:
    """intake.json."""
    said = site.intake
    return {
        "folder": f"{nas.path}/{nas.drop}",
        "state": said.state_dir,
        "status": said.status,
        "slurm_conf": site.slurm.conf,
        "site": view_path(site),
        "workdir": said.workdir,
        "settle_seconds": float(said.settle_seconds),
        "largest_bytes": mebibytes(said.max_file_size) * 2**20,
        "in_flight_per_user": said.in_flight_per_user,
        "slurm_release": releases.text(release),
        "log_level": site.penstockd.log_level,
        "log_format": site.penstockd.log_format,
    }


def collector(site: Site, nas: Nas) -> dict[str, Any]:
    """collector.json."""
    said = site.results
    return {
        "state_dir": said.state_dir,
        "results": f"{nas.path}/{nas.results}",
        "slurm_conf": site.slurm.conf,
        "limits": {"output_files": said.max_files, "output_bytes": mebibytes(said.max_bytes) * 2**20},
        "hook": said.hook or "",
        "webhook": said.webhook or "",
        "log_level": site.penstockd.log_level,
        "log_format": site.penstockd.log_format,
    }


def gpu_resources(site: Site) -> dict[str, str]:
    """Resource names of GPU types that have another than the usual one."""
    named = {name: gpu.resource for name, gpu in site.gpus.items()}
    return {name: resource for name, resource in named.items() if resource != wellknown.GPU_RESOURCE}


def shared_mounts(site: Site) -> tuple[str, ...]:
    """Folders that pods see under the same path."""
    if site.nas is None:
        return ()
    return (*((site.nas.path,) if site.nas.in_pods else ()), *site.nas.shared_mounts)


def missing_workdir(site: Site) -> Literal["refuse", "tmp"]:
    """What becomes of a job whose working directory pods do not see."""
    return site.nas.missing_workdir if site.nas is not None and shared_mounts(site) else "tmp"


def _by_partition(site: Site, key: str, *, prefix: str = "") -> dict[str, Any]:
    found = {f"{prefix}{name}": getattr(each, key) for name, each in site.partitions.items()}
    return {name: value for name, value in found.items() if value}


def _given(site: Site, key: str) -> dict[str, list[str]]:
    """By partition, where the site says something, be it nothing at all."""
    found = {name: getattr(each, key) for name, each in site.partitions.items()}
    return {name: list(value) for name, value in found.items() if value is not None}


def _tolerations(site: Site) -> dict[str, list[dict[str, str]]]:
    return {
        name: [each.model_dump(exclude_none=True) for each in partition.tolerations]
        for name, partition in site.partitions.items()
        if partition.tolerations
    }


def _mount_sources(site: Site) -> dict[str, dict[str, Any]]:
    """How pods mount the NAS where it is no folder of their node."""
    if site.nas is None:
        return {}
    if site.nas.nfs is not None:
        return {site.nas.path: {"nfs": {"server": site.nas.nfs.server, "path": site.nas.nfs.path}}}
    if site.nas.claim is not None:
        return {site.nas.path: {"persistentVolumeClaim": {"claimName": site.nas.claim}}}
    return {}


def view(
    site: Site, groups: clusters.Groups, *, release: releases.Release, conf: conffile.Conf | None = None
) -> siteview.SiteView:
    """The site as the compiler of scripts sees it; `conf` is what an existing slurm.conf says without us."""
    existing = slurmviews.Existing(conf)
    return siteview.SiteView(
        slurm=releases.text(release),
        complete=site.slurm.manage == "whole",
        gres_types=existing.gres_types(any(node.gpus for nodes in groups.values() for node in nodes)),
        max_array_size=existing.max_array_size or site.slurm.max_array_size,
        partitions=existing.partitions(site, groups),
        nodes=tuple(_kind(site, name, nodes, existing) for name, nodes in groups.items() if nodes),
        registries=site.registry.allowed,
        forbidden_directives=site.kubernetes.forbidden_directives,
        default_image=site.registry.default_image or "",
        shared_mounts=shared_mounts(site),
        missing_workdir=missing_workdir(site),
        namespace_pattern=site.kubernetes.namespace_pattern,
        kill_wait=site.timeouts.kill_wait,
        memory_per_cpu_mib=existing.memory_per_cpu(site, groups),
        gpu_resources=gpu_resources(site),
        cluster=site.cluster,
        penstockd=penstockd(site, slurm_uid=0) | {"hook_uids": []},
    )


def view_path(site: Site) -> str:
    """Where that view is, for whoever checks a script: `penstock validate`, the submit filter, the intake."""
    return str(PurePosixPath(site.penstockd.config).with_name("site.json"))


def _kind(
    site: Site, group: str, nodes: tuple[model.NodeSpec, ...], existing: slurmviews.Existing
) -> siteview.NodeKind:
    return siteview.NodeKind(
        count=len(nodes),
        cpus=min(node.cpus for node in nodes),
        memory_mib=min(node.memory_mb for node in nodes),
        gpus=min(node.gpus for node in nodes),
        gpu_type=nodes[0].gpu_type,
        features=existing.features(nodes),
        partitions=tuple(name for name, each in site.partitions.items() if group in each.nodes),
    )
