"""Pods that nobody has submitted yet, as penstockd would make them: of a script, or of an instance.

Where Slurm decides only at start (which nodes, how tasks fall on them) they are those of the smallest
allocation that it may give.
"""

from __future__ import annotations

import dataclasses
import os
import pwd
from typing import Any

import msgspec

from penstock import errors
from penstock.daemon import settings
from penstock.model import homes, launches
from penstock.model.jobspec import JobSpec
from penstock.model.siteview import SiteView
from penstock.render import instances, namespaces, pods
from penstock.sbatch import footprint

UNNAMED_ACCOUNT = "your-account"  # stands for the default account, which only the accounting knows
DEFAULT_MIB = 1024
"""Memory of a CPU where neither the script nor the site says."""
MOST = 10_000
"""More than any cluster has nodes: a slip of the finger in --nodes is not to fill this host's memory."""


def owner_named(name: str = "") -> launches.Owner:
    """A user of this host; a number that is no user stands for itself."""
    try:
        entry = pwd.getpwnam(name) if name else pwd.getpwuid(os.getuid())
    except KeyError:
        if not name.isdecimal() or not 0 < int(name) < 2**31:
            raise errors.UsageError(f"{name!r} is neither a user of this host nor a number") from None
        return launches.Owner(name=name, uid=int(name), gid=int(name), groups=())
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return launches.Owner(
        name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, groups=groups, home=entry.pw_dir
    )


def pod_settings(site: SiteView) -> pods.PodSettings:
    """What the site decides about pods, read as penstockd reads it; a view written by hand says less."""
    if site.penstockd:
        return dataclasses.replace(_settings(site.penstockd).pods, cluster=site.cluster)
    return pods.PodSettings(
        cluster=site.cluster,
        default_image=site.default_image,
        partition_images={name: each.image for name, each in site.partitions.items() if each.image},
        shared_mounts=site.shared_mounts,
        namespace_pattern=site.namespace_pattern,
        kill_wait=site.kill_wait,
    )


def _settings(document: dict[str, Any]) -> settings.Settings:
    try:
        return msgspec.convert(document, settings.Settings)
    except msgspec.ValidationError as error:
        raise errors.UsageError(
            f"the site's view has settings of penstockd that this version does not know: {error}",
            hint="`penstock apply` writes it anew.",
        ) from error


def namespace(job: JobSpec, site: SiteView) -> dict[str, Any]:
    """Where they will be."""
    owner = _owner(job)
    name = pods.namespace_of(owner, pod_settings(site))
    return namespaces.render_namespace(name, owner, shared=homes.is_shared(site.namespace_pattern))


def _owner(job: JobSpec) -> launches.Owner:
    """Who asks, charged to the account that the script names."""
    return dataclasses.replace(owner_named(), account=job.account or UNNAMED_ACCOUNT)


def of_job(job: JobSpec, script: bytes, site: SiteView) -> list[dict[str, Any]]:
    """One for each node, but no more than MOST."""
    share = footprint.even_share(job)
    wanted = instances.Instance(
        owner=_owner(job),
        job_id=0,
        cpus=share.cpus,
        memory_mib=share.memory_mib or share.cpus * usual_memory(site),
        gpus=share.gpus,
        gpu_resource=site.gpu_resource(_gpu_type(job)),
        gpu_type=_gpu_type(job),
        qos=job.qos,
        wish=job.pod,
        partition=next(iter(site.partitions_of(job.partition)), ""),
    )
    return instances.job_pods(wanted, ranks=min(count(job), MOST), script=script, settings=pod_settings(site))


def usual_memory(site: SiteView) -> int:
    """MiB for each CPU of a job that names no memory."""
    return site.memory_per_cpu_mib or DEFAULT_MIB


def count(job: JobSpec) -> int:
    """How many pods it has at least."""
    return max(job.nodes.minimum, 1)


def _gpu_type(job: JobSpec) -> str:
    """The one type of GPU that the job names; nothing when it names none, or several."""
    named = {gres.type for gres in job.gres.everything if gres.name == "gpu" and gres.type}
    return named.pop() if len(named) == 1 else ""
