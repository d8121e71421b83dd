"""What `penstock uninstall` leaves: users' data and running processes, which it must not remove."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from penstock import errors, pings, wellknown, wording
from penstock.hooks import wire
from penstock.install import installers, kubeadmin, servicefolders
from penstock.kube import kinds, types
from penstock.site import crosschecks
from penstock.site.schema import Site


def remaining(site: Site, cluster: kubeadmin.Cluster | None) -> Iterator[str]:
    """A line for each kind, with the way to remove it. `cluster` is None if Kubernetes may not be asked."""
    if cluster is not None:
        yield from _namespaces(cluster)
    folders = [str(folder) for folder in _folders(site) if folder.is_dir()]
    if folders:
        yield f"folders: {', '.join(folders)}"
    yield from _daemons(site)
    if site.accounts:
        yield "accounts and users in Slurm's accounting (`sacctmgr`)"


def _namespaces(cluster: kubeadmin.Cluster) -> Iterator[str]:
    """Namespaces of jobs, including those of other sites on the same Kubernetes."""
    try:
        found = cluster.items(kinds.NAMESPACES, types.Object)
    except errors.KubeError as error:
        yield f"namespaces of jobs, if any: {error.message}"
        return
    marks = {wellknown.LABEL_USER_ID, wellknown.LABEL_ACCOUNT}
    names = [each.metadata.name for each in found if marks & each.metadata.labels.keys()]
    if names:
        yield f"namespaces of jobs: {wording.some(sorted(names))} (`kubectl delete namespace NAME`)"


def _folders(site: Site) -> Iterator[Path]:
    if site.nas is not None:
        yield Path(site.nas.path) / site.nas.drop
        yield from (
            folder for folder, _, _ in servicefolders.on_nas(site) if folder.name != wellknown.DROP_SUBMIT
        )
        yield Path(site.results.state_dir)
        yield Path(site.intake.state_dir)
    yield Path(site.slurm.gpu_device_dir)


def _daemons(site: Site) -> Iterator[str]:
    with contextlib.suppress(OSError, wire.WireError):
        pings.ping(site.penstockd.socket)
        yield f"penstockd, which listens on {site.penstockd.socket}: stop it"
    virtual = [
        node for group in site.node_groups.values() if group.slurmd for node in crosschecks.nodes_of(group)
    ]
    if virtual:
        how = "`systemctl disable --now penstock-slurmd@NODE`" if installers.SYSTEMD.is_dir() else "stop them"
        yield f"slurmds of nodes that are no longer in slurm.conf: {wording.some(virtual)} ({how})"
