"""What is still there after `penstock uninstall`: users' data and what runs is nobody's to remove unasked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock import errors, pings, wellknown, wording
from penstock.hooks import wire
from penstock.install import installers, kubeadmin, servicefolders
from penstock.kube import kinds, types
from penstock.site import crosschecks
from penstock.site.schema import Site


def remaining(site: Site, cluster: kubeadmin.Cluster | None) -> Iterator[str]:
    """A line for each kind, with how to be rid of it; Kubernetes is asked where it may be."""
    if cluster is not None:
        yield from _namespaces(cluster)
    there = [str(folder) for folder in _folders(site) if folder.is_dir()]
    if there:
        yield f"folders: {', '.join(there)}"
    yield from _daemons(site)
    if site.accounts:
        yield "accounts and users in Slurm's accounting (`sacctmgr`)"


def _namespaces(cluster: kubeadmin.Cluster) -> Iterator[str]:
    """Jobs' namespaces with what users have put there; those of other sites on the same Kubernetes, too."""
    try:
        found = cluster.items(kinds.NAMESPACES, types.Object)
    except errors.KubeError as error:
        yield f"namespaces of jobs, if there are any: {error.message}"
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
    try:
        pings.ping(site.penstockd.socket)
    except (OSError, wire.WireError):
        pass
    else:
        yield f"penstockd, which listens on {site.penstockd.socket}: stop it"
    virtual = [
        node for group in site.node_groups.values() if group.slurmd for node in crosschecks.nodes_of(group)
    ]
    if virtual:
        how = "`systemctl disable --now penstock-slurmd@NODE`" if installers.SYSTEMD.is_dir() else "stop them"
        yield f"slurmds of nodes that are no longer in slurm.conf: {wording.some(virtual)} ({how})"
