"""The steps and daemons of a lab's real cluster."""

from __future__ import annotations

from functools import partial

from penstock_lab import component, files, taskgraph
from penstock_lab.kubernetes import (
    authority,
    bootstrap,
    controlplane,
    hostnote,
    kwok,
    layout,
    machines,
    registry,
    useraccess,
)

USER = "user's access"


def all_steps(
    cluster: layout.Cluster, *, penstockd_owner: files.Owner, user: str, namespace_pattern: str
) -> tuple[taskgraph.Step, ...]:
    """The steps besides the daemons."""
    admit = partial(useraccess.admit, cluster, user, namespace_pattern=namespace_pattern)
    common = (
        taskgraph.Step(
            name=controlplane.KEYS, run=lambda: authority.ensure(cluster, penstockd_owner=penstockd_owner)
        ),
        taskgraph.Step(name=controlplane.FILES, after=(controlplane.KEYS,), run=lambda: _prepare(cluster)),
        taskgraph.Step(
            name=bootstrap.ROLES, after=(controlplane.APISERVER,), run=lambda: bootstrap.grant_roles(cluster)
        ),
        taskgraph.Step(name=USER, after=(bootstrap.ROLES, controlplane.CONTROLLERS), run=admit),
    )
    if not cluster.pretended:
        return (*common, *_node_steps(cluster))
    run = partial(kwok.make_nodes, cluster)
    return (*common, taskgraph.Step(name=bootstrap.NODES, after=(kwok.KWOK, bootstrap.ROLES), run=run))


def _node_steps(cluster: layout.Cluster) -> tuple[taskgraph.Step, ...]:
    containerds = tuple(machines.containerd_name(machine) for machine in cluster.machines)
    kubelets = tuple(machines.kubelet_name(machine) for machine in cluster.machines)
    return (
        taskgraph.Step(name=machines.IMAGES, after=containerds, run=partial(machines.import_images, cluster)),
        taskgraph.Step(name=registry.PUSHED, after=(registry.REGISTRY,), run=partial(registry.push, cluster)),
        taskgraph.Step(
            name=bootstrap.NODES,
            after=(*kubelets, registry.PUSHED),
            run=partial(bootstrap.complete_nodes, cluster),
        ),
    )


def _prepare(cluster: layout.Cluster) -> str:
    controlplane.prepare(cluster)
    files.link(cluster.kubectl, cluster.programs / "kubectl")  # the cluster's own release, first on PATH
    if cluster.pretended:
        return kwok.prepare(cluster)
    hostnote.remember(cluster)
    registry.prepare(cluster)
    return machines.prepare(cluster)


def all_components(cluster: layout.Cluster) -> tuple[component.Component, ...]:
    """Every daemon of the cluster, dependencies first."""
    control = controlplane.all_components(cluster)
    if cluster.pretended:
        return (*control, *kwok.components(cluster))
    return (*control, *registry.all_components(cluster), *machines.all_components(cluster))


READY_AFTER = (bootstrap.ROLES, bootstrap.NODES, USER)
"""Steps after which penstockd can start."""
