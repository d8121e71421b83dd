"""Site → PodPolicy."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock import wellknown
from penstock.model.podpolicy import NAMESPACE_QUOTA, PartitionPolicy, PodPolicy
from penstock.site import clusters, nodegroups
from penstock.site.parts import Partition, Quota
from penstock.site.schema import Site


def resolved(site: Site) -> PodPolicy:
    return PodPolicy(
        cluster=site.cluster,
        default_image=site.registry.default_image or "",
        allowed_images=site.registry.allowed,
        forbidden_directives=site.kubernetes.forbidden_directives,
        pod_commands=site.kubernetes.pod_commands,
        image_pull_policy=site.registry.pull_policy or "",
        image_pull_secrets=site.registry.pull_secrets,
        shared_mounts=_shared_mounts(site),
        mount_sources=_mount_sources(site),
        namespace_pattern=site.kubernetes.namespace_pattern,
        reserved_namespaces=(site.kubernetes.namespace,),
        namespace_quota=(hard(site, site.quota) if site.quota else {}) or NAMESPACE_QUOTA,
        pod_security=site.kubernetes.pod_security,
        isolate_namespaces=site.kubernetes.network_policy,
        kill_wait=site.timeouts.kill_wait,
        gpu_labels={name: gpu.labels for name, gpu in site.gpus.items() if gpu.labels},
        gpu_resources={
            name: gpu.resource for name, gpu in site.gpus.items() if gpu.resource != wellknown.GPU_RESOURCE
        },
        partitions={name: _partition(site.partitions[name]) for name in clusters.bridged_partitions(site)},
    )


def _partition(partition: Partition) -> PartitionPolicy:
    names = set(PartitionPolicy.__struct_fields__)
    return msgspec.convert(partition.model_dump(include=names, exclude_none=True), PartitionPolicy)


def _shared_mounts(site: Site) -> tuple[str, ...]:
    if site.nas is None:
        return ()
    return (*((site.nas.path,) if site.nas.in_pods else ()), *site.nas.shared_mounts)


def missing_workdir(site: Site) -> Literal["refuse", "tmp"]:
    """How a job is treated whose working directory is not in pods."""
    return site.nas.missing_workdir if site.nas is not None and _shared_mounts(site) else "tmp"


def _mount_sources(site: Site) -> dict[str, dict[str, Any]]:
    """Volume source of the NAS if it is not a hostPath."""
    if site.nas is None:
        return {}
    if site.nas.nfs is not None:
        return {site.nas.path: {"nfs": {"server": site.nas.nfs.server, "path": site.nas.nfs.path}}}
    if site.nas.claim is not None:
        return {site.nas.path: {"persistentVolumeClaim": {"claimName": site.nas.claim}}}
    return {}


def hard(site: Site, quota: Quota) -> dict[str, str]:
    """`hard` of a ResourceQuota, which limits each resource name separately."""
    groups = (group for group in site.node_groups.values() if group.gpus or group.size != "given")
    names = sorted({nodegroups.gpu_resource(site, group) for group in groups}) or [wellknown.GPU_RESOURCE]
    found = {
        "requests.cpu": quota.cpus,
        "requests.memory": quota.memory,
        **{f"requests.{name}": quota.gpus for name in names},
        "pods": quota.pods,
    }
    return {key: str(value) for key, value in found.items() if value is not None}
