"""The real cluster as a part of a lab: what there is to do, and which daemons there are.

The lab asks here instead of the dev cluster and knows nothing more about it.
"""

from __future__ import annotations

from functools import partial

from penstock_lab import component, files, steps
from penstock_lab.kubernetes import (
    access,
    authority,
    controlplane,
    hostnote,
    joining,
    layout,
    machines,
    pretending,
    registry,
)

USER = "user's access"


def all_steps(
    cluster: layout.Cluster, *, penstockd_owner: files.Owner, user: str, namespace_pattern: str
) -> tuple[steps.Step, ...]:
    """What is made beside the daemons, and when."""

    def admit() -> str:
        return access.admit(cluster, user, namespace_pattern=namespace_pattern)

    common = (
        steps.Step(
            name=controlplane.KEYS,
            run=lambda: authority.ensure(cluster, penstockd_owner=penstockd_owner),
        ),
        steps.Step(name=controlplane.FILES, after=(controlplane.KEYS,), run=lambda: _prepare(cluster)),
        steps.Step(
            name=joining.ROLES,
            after=(controlplane.APISERVER,),
            run=lambda: joining.grant_roles(cluster),
        ),
        steps.Step(name=USER, after=(joining.ROLES, controlplane.CONTROLLERS), run=admit),
    )
    return (*common, *(_pretended_steps(cluster) if cluster.pretended else _node_steps(cluster)))


def _pretended_steps(cluster: layout.Cluster) -> tuple[steps.Step, ...]:
    run = partial(pretending.make_nodes, cluster)
    return (steps.Step(name=joining.NODES, after=(pretending.KWOK, joining.ROLES), run=run),)


def _node_steps(cluster: layout.Cluster) -> tuple[steps.Step, ...]:
    containerds = tuple(machines.containerd_name(machine) for machine in cluster.machines)
    kubelets = tuple(machines.kubelet_name(machine) for machine in cluster.machines)
    return (
        steps.Step(name=machines.IMAGES, after=containerds, run=partial(machines.import_images, cluster)),
        steps.Step(name=registry.PUSHED, after=(registry.REGISTRY,), run=partial(registry.push, cluster)),
        steps.Step(
            name=joining.NODES,
            after=(*kubelets, registry.PUSHED),
            run=partial(joining.complete_nodes, cluster),
        ),
    )


def _prepare(cluster: layout.Cluster) -> str:
    controlplane.prepare(cluster)
    _link_kubectl(cluster)
    if cluster.pretended:
        return pretending.prepare(cluster)
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
        return (*control, *pretending.components(cluster))
    return (*control, *registry.all_components(cluster), *machines.all_components(cluster))


READY_AFTER = (joining.ROLES, joining.NODES, USER)
"""Steps after which penstockd can start."""
