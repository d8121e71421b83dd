"""Checks across the keys of a site file: references, sizes, times, ports."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from penstock import errors
from penstock.model import podcommands
from penstock.sbatch import images, k8s
from penstock.sbatch.values import problem, times
from penstock.site import errortexts, sitenamespaces
from penstock.site.findings import Finding, Place
from penstock.site.parts import NodeGroup, Quota
from penstock.site.scalars import mebibytes
from penstock.site.schema import Site
from penstock.site.yamlreader import Document
from penstock.slurm import hostlists

Mistake = tuple[Place, str, str]
SOCKET_LIMIT: Final = 107
LIBEXEC_LIMIT: Final = 120
"""The kernel reads 255 bytes of a `#!` line, which holds launcher and interpreter."""


def check(site: Site, document: Document) -> list[Finding]:
    mistakes = itertools.chain.from_iterable(rule(site, document) for rule in RULES)
    return [document.find(place, message, remedy) for place, message, remedy in mistakes]


def nodes_of(group: NodeGroup) -> tuple[str, ...]:
    """Node names of a group's host list; empty if the list is invalid."""
    try:
        return hostlists.expand(group.nodes or "")
    except errors.SlurmError:
        return ()


def _names(document: Document, key: str, checked: Iterable[str]) -> set[str]:
    """Names that the file defines under this key, including those with an invalid definition."""
    written = document.data.get(key) if isinstance(document.data, dict) else None
    return set(checked) | set(written if isinstance(written, dict) else ())


def _unknown(place: Place, what: str, name: str, known: Iterable[str]) -> Mistake:
    names = sorted(known)
    near = errortexts.suggestion(name, names)
    return place, f"{what} `{name}` is not defined", f"{near}there are: {', '.join(names) or 'none'}"


def _groups_exist(site: Site, document: Document) -> Iterator[Mistake]:
    known = _names(document, "node_groups", site.node_groups)
    nodes = {node for group in site.node_groups.values() for node in nodes_of(group)}
    for name, partition in site.partitions.items():
        for number, group in enumerate(partition.nodes):
            place: Place = ("partitions", name, "nodes", number)
            if group in known:
                continue
            if group in nodes:
                yield place, f"`{group}` is a node, not a node group", "name the group that the node is in"
            else:
                yield _unknown(place, "node group", group, known)


def _groups_used(site: Site, document: Document) -> Iterator[Mistake]:
    used = {group for partition in site.partitions.values() for group in partition.nodes}
    if _names(document, "partitions", site.partitions) != set(site.partitions):
        return  # an invalid partition may use it
    for name in site.node_groups:
        if name not in used:
            message = f"no partition uses node group `{name}`"
            yield ("node_groups", name), message, "add it to the `nodes` of a partition, or remove it"


def _node_lists(site: Site, document: Document) -> Iterator[Mistake]:
    owners: dict[str, str] = {}
    for name, group in site.node_groups.items():
        place: Place = ("node_groups", name, "nodes")
        try:
            nodes = hostlists.expand(group.nodes or "")
        except errors.SlurmError as error:
            yield place, error.message, "write a host list such as n[1-4],login"
            continue
        for node in nodes:
            if node in owners:
                where = "twice in this group" if owners[node] == name else f"in group `{owners[node]}`, too"
                yield place, f"node {node} is {where}", "put it into one group; partitions may share groups"
                break
            owners[node] = name


def _group_sizes(site: Site, document: Document) -> Iterator[Mistake]:
    for name, group in site.node_groups.items():
        place: Place = ("node_groups", name)
        if (group.nodes is None) == (group.selector is None):
            found = "neither `nodes` nor" if group.nodes is None else "both `nodes` and"
            yield place, f"{found} `selector` given", "give one of them: a host list or labels"
        if group.size == "kubernetes":
            continue
        missing = [key for key in ("cpus", "memory") if getattr(group, key) is None]
        if missing:
            yield place, f"`{'` and `'.join(missing)}` not given", "give them, or write `size: kubernetes`"
        yield from _reserved(place, group)


def _reserved(place: Place, group: NodeGroup) -> Iterator[Mistake]:
    if group.cpus is not None and group.reserved.cpus >= group.cpus:
        found = f"{group.reserved.cpus} of {group.cpus} CPUs reserved"
        yield (*place, "reserved", "cpus"), found, "leave at least one CPU for jobs"
    if group.memory is not None and mebibytes(group.reserved.memory) >= mebibytes(group.memory):
        found = f"{group.reserved.memory} of {group.memory} reserved"
        yield (*place, "reserved", "memory"), found, "leave memory for jobs"


def _gpu_types(site: Site, document: Document) -> Iterator[Mistake]:
    known = _names(document, "gpus", site.gpus)
    for name, group in site.node_groups.items():
        place: Place = ("node_groups", name, "gpu_type")
        if group.gpu_type and group.gpu_type not in known:
            yield _unknown(place, "GPU type", group.gpu_type, known)
        if group.gpu_type and not group.gpus and group.size == "given":
            yield place, "a GPU type without GPUs", "add `gpus:`, or remove the type"
    for name, gpu in site.gpus.items():
        if name.isdigit():
            yield ("gpus", name), f"`{name}` is a number", "Slurm reads gpu:N as N GPUs: use a letter"
        if re.search(r"(^|\.)kubernetes\.io/", gpu.resource):
            remedy = "allowed: what a device plugin advertises, such as nvidia.com/gpu or amd.com/gpu"
            yield ("gpus", name, "resource"), f"found {gpu.resource}", remedy


def _defaults(site: Site, document: Document) -> Iterator[Mistake]:
    marked = [name for name, partition in site.partitions.items() if partition.default]
    for name in marked[1:]:
        place: Place = ("partitions", name, "default")
        yield place, f"`{marked[0]}` already is the default partition", "keep one `default: true`"


def _partition_times(site: Site, document: Document) -> Iterator[Mistake]:
    for name, partition in site.partitions.items():
        limits: dict[str, int] = {}
        for key in ("max_time", "default_time"):
            try:
                limits[key] = times.limit(getattr(partition, key))
            except problem.Problem as error:
                yield ("partitions", name, key), error.message, error.hint or "write it like --time"
        if len(limits) == 2 and limits["default_time"] > limits["max_time"]:
            found = f"{partition.default_time} is more than max_time {partition.max_time}"
            yield ("partitions", name, "default_time"), found, "lower it, or raise max_time"


def _images(site: Site, document: Document) -> Iterator[Mistake]:
    allowed = site.registry.allowed
    named: list[tuple[Place, str | None]] = [(("registry", "default_image"), site.registry.default_image)]
    named += [(("partitions", name, "image"), each.image) for name, each in site.partitions.items()]
    for place, image in named:
        if image and not images.is_allowed(image, allowed):
            full = images.full_name(image)
            yield place, f"{full} is not allowed by `registry.allowed`", f"begin with {' or '.join(allowed)}"


def _directives(site: Site, document: Document) -> Iterator[Mistake]:
    for number, name in enumerate(site.kubernetes.forbidden_directives):
        if name not in k8s.NAMES:
            yield _unknown(("kubernetes", "forbidden_directives", number), "directive", name, k8s.NAMES)


def _pod_commands(site: Site, document: Document) -> Iterator[Mistake]:
    for number, name in enumerate(site.kubernetes.pod_commands):
        if name not in podcommands.OFFERED:
            known = podcommands.OFFERED
            yield _unknown(("kubernetes", "pod_commands", number), "command", name, known)


def _priority_classes(site: Site, document: Document) -> Iterator[Mistake]:
    known = _names(document, "priority_classes", site.priority_classes)
    for name, partition in site.partitions.items():
        if partition.priority_class and partition.priority_class not in known:
            place: Place = ("partitions", name, "priority_class")
            yield _unknown(place, "PriorityClass", partition.priority_class, known)


def _networks(site: Site, document: Document) -> Iterator[Mistake]:
    level = site.kubernetes.pod_security
    for name, partition in site.partitions.items():
        if partition.network == "host" and partition.mode != "host" and level != "privileged":
            found = f"Pod Security level {level} refuses pods with the node's network"
            remedy = "write `network: pod`, or `kubernetes.pod_security: privileged`"
            yield ("partitions", name, "network"), found, remedy


def _quotas(site: Site, document: Document) -> Iterator[Mistake]:
    yield from _quota(("quota",), site.quota, site)
    for account_name, account in site.accounts.items():
        yield from _quota(("accounts", account_name, "quota"), account.quota, site)
        for user, entry in account.users.items():
            yield from _quota(("accounts", account_name, "users", user, "quota"), entry.quota, site)


def _quota(place: Place, quota: Quota | None, site: Site) -> Iterator[Mistake]:
    """A quota below the smallest node would refuse every job that requests a whole node."""
    sizes = [group for group in site.node_groups.values() if group.size == "given"]
    if quota is None or not sizes:
        return
    remedy = "raise it to at least that, or remove it for no limit"
    cpus = min((group.cpus for group in sizes if group.cpus), default=0)
    if quota.cpus is not None and quota.cpus < cpus:
        yield (*place, "cpus"), f"{quota.cpus} CPUs are less than one node ({cpus})", remedy
    memory = min((mebibytes(group.memory) for group in sizes if group.memory), default=0)
    if quota.memory is not None and mebibytes(quota.memory) < memory:
        yield (*place, "memory"), f"{quota.memory} is less than one node ({memory}Mi)", remedy


def _users(site: Site, document: Document) -> Iterator[Mistake]:
    homes: dict[str, str] = {}
    for name, account in site.accounts.items():
        for user in account.users:
            if user in homes:
                place: Place = ("accounts", name, "users", user)
                yield place, f"`{user}` is in account `{homes[user]}`, too", "keep the user in one account"
            homes.setdefault(user, name)
    known = _names(document, "accounts", site.accounts)
    for name, partition in site.partitions.items():
        for number, account_name in enumerate(partition.allow_accounts):
            if known and account_name not in known:
                yield _unknown(("partitions", name, "allow_accounts", number), "account", account_name, known)


def _access(site: Site, document: Document) -> Iterator[Mistake]:
    if site.kubernetes.access == "in-cluster" and site.penstockd.run == "systemd":
        found = "penstockd is a systemd unit, which has no service account"
        yield ("kubernetes", "access"), found, "write `penstockd.run: deployment`, or `access: kubeconfig`"
    if site.kubernetes.api is not None and site.kubernetes.access != "in-cluster":
        remedy = "remove it: the kubeconfig has the API's address"
        yield ("kubernetes", "api"), "only used with `access: in-cluster`", remedy


def _timeouts(site: Site, document: Document) -> Iterator[Mistake]:
    order = ("kill_wait", "release", "epilog")
    for lower, upper in itertools.pairwise(order):
        first, second = getattr(site.timeouts, lower), getattr(site.timeouts, upper)
        if first >= second:
            place: Place = ("timeouts", upper)
            yield place, f"{upper} {second} is not above {lower} {first}", f"order: {' < '.join(order)}"


def _paths(site: Site, document: Document) -> Iterator[Mistake]:
    socket, libexec = len(site.penstockd.socket), len(site.penstockd.libexec)
    if socket > SOCKET_LIMIT:
        yield ("penstockd", "socket"), f"{socket} bytes", f"the path of a socket has at most {SOCKET_LIMIT}"
    if libexec > LIBEXEC_LIMIT:
        remedy = f"at most {LIBEXEC_LIMIT}: it is part of the `#!` line of scripts"
        yield ("penstockd", "libexec"), f"{libexec} bytes", remedy


def _nas(site: Site, document: Document) -> Iterator[Mistake]:
    nas = site.nas
    if nas is not None and nas.nfs is not None and nas.claim is not None:
        yield ("nas", "claim"), "both `nfs` and `claim` given", "keep one of them"
    if nas is not None and nas.drop == nas.results:
        yield ("nas", "results"), f"folder {nas.drop} is also `drop`", "give each its own"


def _ports(site: Site, document: Document) -> Iterator[Mistake]:
    taken = {site.slurm.port: "slurmctld", site.slurm.accounting.port: "slurmdbd"}
    if site.slurm.port == site.slurm.accounting.port:
        yield ("slurm", "accounting", "port"), f"port {site.slurm.port} is slurmctld's", "use another"
    for name, group in site.node_groups.items():
        if group.slurmd is None:
            continue
        place: Place = ("node_groups", name, "slurmd", "first_port")
        ports = range(group.slurmd.first_port, group.slurmd.first_port + len(nodes_of(group)))
        clash = next((port for port in ports if port in taken), None)
        if ports and ports[-1] > 65535:
            yield place, f"the last node would have port {ports[-1]}", "the highest port is 65535"
        elif clash is not None:
            yield place, f"port {clash} is already used by {taken[clash]}", "choose free ports"
        taken |= dict.fromkeys(ports, f"group {name}")


RULES: Final[tuple[Callable[[Site, Document], Iterator[Mistake]], ...]] = (
    _groups_exist,
    _groups_used,
    _node_lists,
    _group_sizes,
    _gpu_types,
    _defaults,
    _partition_times,
    _images,
    _directives,
    _pod_commands,
    _priority_classes,
    _networks,
    _quotas,
    _users,
    sitenamespaces.mistakes,
    _access,
    _timeouts,
    _paths,
    _nas,
    _ports,
)
