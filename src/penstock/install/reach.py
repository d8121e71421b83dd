"""Which slurmds can work for bridged nodes: those on penstockd's host. Hooks ask it over a unix socket.

Where a slurmd cannot reach penstockd its jobs would be RUNNING without a pod, and its node would be taken
until the Epilog gives up. And what slurm.conf itself names is run by every slurmd of the cluster: on a host
without our programs every job would fail, in every partition.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Iterator

from penstock import errors, wording
from penstock.install.facts import Facts
from penstock.model import cluster as model
from penstock.site import clusters
from penstock.site.schema import Site

IsHere = Callable[[str], bool]
REMEDY = (
    "Bridge nodes that slurm.conf does not define, with `slurmd: {host: …}` of their node group naming this"
    " host: their slurmds run here and read a file of their own."
)


@functools.cache
def is_here(name: str) -> bool:
    """Whether a host's name or address is this machine's."""
    if name in ("localhost", socket.gethostname()):
        return True
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(_can_listen(family, address[0]) for family, _, _, _, address in found)


def _can_listen(family: int, address: object) -> bool:
    """Only an address of this machine can be listened on."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def problems(site: Site, known: Facts, here: IsHere = is_here) -> Iterator[str]:
    """Why the site cannot be bridged as its file says, a sentence for each node group."""
    for name, nodes in known.groups.items():
        bridged = {node.name for node in clusters.bridged_nodes(site, {name: nodes})}
        away = [node.name for node in nodes if node.name in bridged and not here(_address(node, known))]
        if away:
            yield (
                f"node group {name}: the slurmds of {wording.some(away)} run on other hosts,"
                " where hooks cannot reach penstockd's socket"
            )
    yield from _hosts_without_hooks(site, known, here)


def _hosts_without_hooks(site: Site, known: Facts, here: IsHere) -> Iterator[str]:
    if known.conf is None or not clusters.hooks_everywhere(site, known.groups, known.existing):
        return
    own = {node.name for node in clusters.bridged_nodes(site, known.groups)}
    others = [node for node in sorted(known.conf.nodes - own) if not here(known.conf.address_of(node))]
    if others:
        shared = wording.some(sorted(own & known.conf.nodes))
        yield (
            f"slurm.conf defines {shared}: to run hooks there it must name them, and {wording.some(others)}"
            " on other hosts would run them, too"
        )


def require(site: Site, known: Facts, here: IsHere = is_here) -> None:
    """InstallError unless every slurmd of a bridged node can reach penstockd."""
    found = list(problems(site, known, here))
    if found:
        raise errors.InstallError("; ".join(found), hint=f"{REMEDY} Nothing was changed.")


def _address(node: model.NodeSpec, known: Facts) -> str:
    """Where slurmctld finds the node's slurmd."""
    if known.conf is not None and node.name in known.conf.nodes:
        return known.conf.address_of(node.name)
    return node.address or node.host or node.name
