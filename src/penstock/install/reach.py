"""Checks that slurmds of bridged nodes run on penstockd's host, since hooks use its unix socket.

If a slurmd cannot reach penstockd, its jobs are RUNNING without a pod, and its node is blocked until the
Epilog gives up. Hooks that slurm.conf itself names are run by every slurmd of the cluster: on a host without
our programs every job would fail, in every partition.
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
    "Bridge nodes that slurm.conf does not define, and set `slurmd: {host: …}` of their node group to this"
    " host: their slurmds then run here and read a file of their own."
)


@functools.cache
def is_here(name: str) -> bool:
    """Whether a host name or address is this machine's."""
    if name in ("localhost", socket.gethostname()):
        return True
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(_can_listen(family, address[0]) for family, _, _, _, address in found)


def _can_listen(family: int, address: object) -> bool:
    """Only an address of this machine can be bound."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def problems(site: Site, known: Facts, here: IsHere = is_here) -> Iterator[str]:
    """Why the node groups cannot be bridged, a sentence for each."""
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
            f"slurm.conf defines {shared}: hooks for them must be in slurm.conf, and {wording.some(others)}"
            " on other hosts would run them, too"
        )


def require(site: Site, known: Facts, here: IsHere = is_here) -> None:
    """Raise InstallError unless all slurmds of bridged nodes can reach penstockd."""
    found = list(problems(site, known, here))
    if found:
        raise errors.InstallError("; ".join(found), hint=f"{REMEDY} Nothing was changed.")


def _address(node: model.NodeSpec, known: Facts) -> str:
    """The address at which slurmctld reaches the node's slurmd."""
    if known.conf is not None and node.name in known.conf.nodes:
        return known.conf.address_of(node.name)
    return node.address or node.host or node.name
