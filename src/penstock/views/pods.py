"""Renders the pods that penstockd would create for a script or an instance.

What Slurm decides only at start (nodes, tasks per node) is that of the smallest possible allocation.
"""

from __future__ import annotations

import dataclasses
import os
import pwd
from collections.abc import Collection
from pathlib import Path
from typing import Any

from penstock import errors
from penstock.model import launches
from penstock.model.jobspec import JobSpec
from penstock.model.podpolicy import PodPolicy
from penstock.model.siteview import SiteView
from penstock.render import instances, namespaces
from penstock.sbatch import footprint

UNNAMED_ACCOUNT = "your-account"  # placeholder of the default account, which only accounting knows
DEFAULT_MIB = 1024
"""Memory per CPU if neither the script nor the site says."""
MOST = 10_000
"""More than any cluster has nodes: a typo in --nodes must not exhaust this host's memory."""


def owner_named(name: str = "") -> launches.Owner:
    """A user of this host, by name or by a uid that the host need not know."""
    try:
        entry = pwd.getpwnam(name) if name else pwd.getpwuid(os.getuid())
    except KeyError:
        if not name.isdecimal() or not 0 < int(name) < 2**31:
            raise errors.UsageError(f"{name!r} is neither a user of this host nor a uid") from None
        return launches.Owner(name=name, uid=int(name), gid=int(name), groups=())
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return launches.Owner(
        name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, groups=groups, home=entry.pw_dir
    )


def policy_of(site: SiteView) -> PodPolicy:
    """The site's pod policy. Raises UsageError if the view lacks parts of it."""
    if site.is_outdated:
        hint = "Run `penstock apply` to renew it."
        raise errors.UsageError(
            "the site's view is of an older release and lacks settings of pods", hint=hint
        )
    return site.pods


def namespace(job: JobSpec, site: SiteView) -> dict[str, Any]:
    return namespaces.render_namespace(_owner(job), site.pods)


def _owner(job: JobSpec) -> launches.Owner:
    """This user, with the script's account."""
    return dataclasses.replace(owner_named(), account=job.account or UNNAMED_ACCOUNT)


def of_job(job: JobSpec, script: bytes, site: SiteView, *, here: str) -> list[dict[str, Any]]:
    share = footprint.even_share(job)
    partition = next(iter(site.partitions_of(job.partition)), "")
    wanted = instances.Instance(
        owner=_owner(job),
        job_id=0,
        cpus=share.cpus,
        memory_mib=share.memory_mib or share.cpus * usual_memory(site),
        gpus=_gpus(job, share.gpus, site.gpu_types(partition)),
        gpu_resource=site.gpu_resource(partition),
        ranks=min(count(job), MOST),
        partition=partition,
        qos=job.qos,
    )
    return instances.job_pods(wanted, _launch(job, script, here), policy_of(site))


def _gpus(job: JobSpec, number: int, known: Collection[str]) -> dict[str, int]:
    """GPUs by type; unnamed ones count as the partition's only type, if it has one."""
    named = footprint.gpus_by_type(job)
    rest = next(iter(known)) if len(known) == 1 else ""
    return named | {rest: named.get(rest, 0) + max(number - sum(named.values()), 0)}


def _launch(job: JobSpec, script: bytes, here: str) -> launches.LaunchRequest:
    """The launcher's request; patterns in names of output files are not expanded."""
    workdir, stdout, stderr = (
        os.fsencode(os.path.normpath(Path(here, job.workdir, name)))
        for name in ("", job.output, job.error or job.output)
    )
    return launches.LaunchRequest(
        interpreter=os.fsencode(job.interpreter),
        script=script,
        workdir=workdir,
        stdout=stdout,
        stderr=stderr,
        pod=job.pod,
    )


def usual_memory(site: SiteView) -> int:
    """MiB per CPU of a job without --mem."""
    return site.memory_per_cpu_mib or DEFAULT_MIB


def count(job: JobSpec) -> int:
    """Minimum number of pods."""
    return max(job.nodes.minimum, 1)
