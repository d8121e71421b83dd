"""Which Kubernetes a lab has, and what follows for the rest of the lab.

`dev` is our own small API server, `real` a Kubernetes built on this machine, `kwok` a real control plane with
simulated nodes; anything else is the kubeconfig of an existing cluster.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock import errors
from penstock_lab import component, directories, passwd, paths, spec, taskgraph
from penstock_lab.kubernetes import (
    builds,
    externalcluster,
    inotify,
    labcluster,
    layout,
    remains,
    requirements,
    useraccess,
)


def needs_building(lab: spec.LabSpec) -> bool:
    """Whether the lab runs its own control plane."""
    return lab.bridge and lab.kubernetes in (spec.REAL, spec.KWOK)


def with_programs(
    lab: spec.LabSpec, *, listener: taskgraph.Listener, environment: Mapping[str, str]
) -> spec.LabSpec:
    """The lab with the path of its Kubernetes' binaries; builds them if they are not cached."""
    if not needs_building(lab):
        return lab
    requirements.require(environment)
    module = builds.VERSIONS[lab.kubernetes_version or builds.NEWEST]
    built = builds.ensure(module, listener=listener, environment=environment)
    if not lab.complete:
        inotify.require(lab.nodes if lab.kubernetes == spec.REAL else 0)
    pretender = ""
    if lab.kubernetes == spec.KWOK:
        pretender = str(builds.ensure(builds.KWOK, listener=listener, environment=environment) / "kwok")
    return msgspec.structs.replace(lab, programs=str(built), pretender=pretender)


def members(choice: str) -> tuple[spec.Member, ...]:
    """The nodes of an existing cluster; empty for one that the lab makes."""
    if choice in (spec.DEV, spec.REAL, spec.KWOK):
        return ()
    config = Path(choice)
    if not config.is_file():
        raise errors.UsageError(
            f"--kubernetes {choice}: not dev, real, kwok or an existing file",
            hint="Give the path of a kubeconfig for an existing cluster.",
        )
    return externalcluster.members(config)


def cluster_of(place: paths.LabPaths, lab: spec.LabSpec) -> layout.Cluster:
    return layout.Cluster(
        directory=place.directory,
        programs=Path(lab.programs),
        pretender=Path(lab.pretender),
        api_port=lab.devcluster_port,
        first_port=lab.cluster_port,
        nodes=lab.node_specs,
    )


def all_components(place: paths.LabPaths, lab: spec.LabSpec) -> tuple[component.Component, ...]:
    """Daemons of the lab's own cluster, if it has one."""
    return labcluster.all_components(cluster_of(place, lab)) if needs_building(lab) else ()


def all_steps(place: paths.LabPaths, lab: spec.LabSpec) -> tuple[taskgraph.Step, ...]:
    """The steps for a cluster other than the dev cluster."""
    if not lab.foreign and not needs_building(lab):
        return ()
    owner = passwd.owner_of(directories.SLURM)
    if lab.foreign:
        run = functools.partial(externalcluster.install, place, lab, penstockd_owner=owner)
        return (taskgraph.Step(name=externalcluster.STEP, run=run),)
    return labcluster.all_steps(
        cluster_of(place, lab), penstockd_owner=owner, user=lab.user, namespace_pattern=spec.NAMESPACE_PATTERN
    )


def ready_after(lab: spec.LabSpec) -> tuple[str, ...]:
    """The steps after which pods can be created."""
    if lab.foreign:
        return (externalcluster.STEP,)
    return labcluster.READY_AFTER if needs_building(lab) else ()


def admit_user(place: paths.LabPaths, lab: spec.LabSpec, name: str) -> None:
    """Give another user read access to his jobs in the lab's own cluster."""
    if needs_building(lab):
        useraccess.admit(cluster_of(place, lab), name, namespace_pattern=spec.NAMESPACE_PATTERN)


def clear(place: paths.LabPaths, lab: spec.LabSpec | None) -> None:
    """Remove what the cluster has outside the lab's directory; without `lab`, assume it has its own."""
    if lab is None or needs_building(lab):
        remains.clear(place.directory)
    elif lab.foreign:
        externalcluster.remove(place, lab)
