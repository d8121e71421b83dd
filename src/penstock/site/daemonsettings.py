"""Site → settings of the daemons, and the view of the site that `penstock validate` uses."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import msgspec

from penstock.model import cluster as model
from penstock.model import releases, siteview
from penstock.site import clusters, policies, slurmviews
from penstock.site.scalars import mebibytes
from penstock.site.schema import Nas, Site
from penstock.slurm import conffile


def penstockd(site: Site, *, slurm_uid: int) -> dict[str, Any]:
    """penstockd.json, without empty values, which are penstockd's defaults."""
    found = {
        **places(site),
        **_access(site),
        "hook_uids": [slurm_uid, 0],
        "pods": msgspec.to_builtins(policies.resolved(site)),
        "log_level": site.penstockd.log_level,
        "log_format": site.penstockd.log_format,
        "start_timeout": float(site.timeouts.start),
        "metrics_port": site.penstockd.metrics_port,
        "state_dir": site.results.state_dir if site.nas is not None else "",
    }
    return {key: value for key, value in found.items() if value or key == "kubeconfig"}


def places(site: Site) -> dict[str, str]:
    """Paths of penstockd's socket, slurm.conf and the results."""
    return {
        "socket": site.penstockd.socket,
        "slurm_conf": site.slurm.conf,
        "results": f"{site.nas.path}/{site.nas.results}" if site.nas is not None else "",
    }


def _access(site: Site) -> dict[str, str]:
    if site.kubernetes.access == "in-cluster":
        return {"kubeconfig": "", "service_account_dir": site.kubernetes.service_account_dir}
    return {"kubeconfig": site.kubernetes.kubeconfig}


def intake(site: Site, nas: Nas, *, release: releases.Release) -> dict[str, Any]:
    settings = site.intake
    return {
        "folder": f"{nas.path}/{nas.drop}",
        "state": settings.state_dir,
        "status": settings.status,
        "slurm_conf": site.slurm.conf,
        "site": view_path(site),
        "workdir": settings.workdir,
        "settle_seconds": float(settings.settle_seconds),
        "largest_bytes": mebibytes(settings.max_file_size) * 2**20,
        "in_flight_per_user": settings.in_flight_per_user,
        "slurm_release": releases.text(release),
        "log_level": site.penstockd.log_level,
        "log_format": site.penstockd.log_format,
    }


def collector(site: Site, nas: Nas) -> dict[str, Any]:
    settings = site.results
    return {
        "state_dir": settings.state_dir,
        "results": f"{nas.path}/{nas.results}",
        "slurm_conf": site.slurm.conf,
        "limits": {"output_files": settings.max_files, "output_bytes": mebibytes(settings.max_bytes) * 2**20},
        "hook": settings.hook or "",
        "webhook": settings.webhook or "",
        "log_level": site.penstockd.log_level,
        "log_format": site.penstockd.log_format,
    }


def view(
    site: Site, groups: clusters.Groups, *, release: releases.Release, conf: conffile.Conf | None = None
) -> siteview.SiteView:
    """The site as the script compiler sees it; `conf` is an existing slurm.conf without our include."""
    existing = slurmviews.Existing(conf)
    return siteview.SiteView(
        slurm=releases.text(release),
        complete=site.slurm.manage == "whole",
        gres_types=existing.gres_types(any(node.gpus for nodes in groups.values() for node in nodes)),
        max_array_size=existing.max_array_size or site.slurm.max_array_size,
        partitions=existing.partitions(site, groups),
        nodes=tuple(_kind(site, name, nodes, existing) for name, nodes in groups.items() if nodes),
        missing_workdir=policies.missing_workdir(site),
        memory_per_cpu_mib=existing.memory_per_cpu(site, groups),
        pods=policies.resolved(site),
        penstockd=places(site),
    )


def view_path(site: Site) -> str:
    """Path of the view that `penstock validate`, the submit filter and the intake read."""
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
