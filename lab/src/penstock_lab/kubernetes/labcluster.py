"""The real cluster as a part of a lab: what there is to do, and which daemons there are.

The lab asks here instead of the dev cluster and knows nothing more about it.
"""

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
    """What is made beside the daemons, and when."""

    def admit() -> str:
        return useraccess.admit(cluster, user, namespace_pattern=namespace_pattern)

    common = (
        taskgraph.Step(
            name=controlplane.KEYS,
            run=lambda: authority.ensure(cluster, penstockd_owner=penstockd_owner),
        ),
        taskgraph.Step(name=controlplane.FILES, after=(controlplane.KEYS,), run=lambda: _prepare(cluster)),
        taskgraph.Step(
            name=bootstrap.ROLES,
            after=(controlplane.APISERVER,),
            run=lambda: bootstrap.grant_roles(cluster),
        ),
        taskgraph.Step(name=USER, after=(bootstrap.ROLES, controlplane.CONTROLLERS), run=admit),
    )
    return (*common, *(_pretended_steps(cluster) if cluster.pretended else _node_steps(cluster)))


def _pretended_steps(cluster: layout.Cluster) -> tuple[taskgraph.Step, ...]:
    run = partial(kwok.make_nodes, cluster)
    return (taskgraph.Step(name=bootstrap.NODES, after=(kwok.KWOK, bootstrap.ROLES), run=run),)


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
    _link_kubectl(cluster)
    if cluster.pretended:
        return kwok.prepare(cluster)
    hostnote.remember(cluster)
    registry.prepare(cluster)
    return machines.prepare(cluster)


def _link_kubectl(cluster: layout.Cluster) -> None:
    """A client of the cluster's own release, first on the PATH of those who use the lab."""
    link = cluster.kubectl
    unfinished = link.with_name(".kubectl.new")
    unfinished.unlink(missing_ok=True)
    unfinished.symlink_to(cluster.programs / "kubectl")
    unfinished.replace(link)


def all_components(cluster: layout.Cluster) -> tuple[component.Component, ...]:
    """Every daemon of the cluster, those needed by others first."""
    control = controlplane.all_components(cluster)
    if cluster.pretended:
        return (*control, *kwok.components(cluster))
    return (*control, *registry.all_components(cluster), *machines.all_components(cluster))


READY_AFTER = (bootstrap.ROLES, bootstrap.NODES, USER)
"""Steps after which penstockd can start."""
