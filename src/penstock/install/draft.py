"""Drafts a first site file from what Slurm and Kubernetes report, matched node by node."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock import errors, wording
from penstock.install import facts, kubeadmin, reach
from penstock.kube import incluster, kubeconfig
from penstock.model.nodes import Node
from penstock.render import yamltext
from penstock.site import nodegroups
from penstock.slurm import reader

PARTITION = "k8s"
FIRST_PORT = 17001
SHOWN = 10
_GPU = re.compile(r"gpu|/mig-")
"""Resource names of GPUs: amd.com/gpu, nvidia.com/mig-1g.10gb, gpu.intel.com/i915."""
HEADER = """\
# Penstock's site file. docs/reference/site.md describes every key.
# `penstock apply --dry-run` shows what it would change; `penstock doctor` checks the live site against it.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """What Slurm and Kubernetes report."""

    settings: Mapping[str, str]
    """`scontrol show config`."""
    nodes: Sequence[Node]
    partitions: Sequence[str]
    members: Sequence[nodegroups.Member]
    host: str
    elsewhere: frozenset[str] = frozenset()
    """Slurm nodes whose slurmds run on other hosts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wishes:
    """Options of the administrator."""

    partition: str = PARTITION
    nas: str = ""
    image: str = ""
    kubeconfig: str = ""
    admin_kubeconfig: str = ""
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Sections whose values replace drafted ones."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draft:
    """The site file, and what does not match."""

    text: str
    matched: tuple[str, ...]
    only_slurm: tuple[str, ...]
    only_kubernetes: tuple[str, ...]
    left_out: tuple[str, ...]
    """Nodes on both sides whose slurmds cannot run our hooks."""
    renamed: tuple[tuple[str, str], ...]
    """Nodes with different names in Slurm and Kubernetes."""
    remarks: tuple[str, ...]


def look(slurm_conf: str, config: Path) -> Seen:
    """Ask Slurm and Kubernetes; in a pod without this kubeconfig, with the pod's service account."""
    is_pod = not config.exists() and incluster.is_pod()
    cluster = kubeadmin.Cluster(incluster.load() if is_pod else kubeconfig.load(config))
    slurm = reader.SlurmReader(slurm_conf)
    nodes = asyncio.run(slurm.nodes())
    return Seen(
        settings=asyncio.run(slurm.configuration()) | {"SLURM_CONF": slurm_conf},
        nodes=nodes,
        partitions=[each.name for each in asyncio.run(slurm.partitions())],
        members=kubeadmin.members_of(cluster),
        host=socket.gethostname(),
        elsewhere=frozenset(node.name for node in nodes if not reach.is_here(node.address or node.name)),
    )


def draft(seen: Seen, wishes: Wishes) -> Draft:
    known = {member.name: member for member in seen.members}
    both = [node for node in seen.nodes if node.name in known]
    matched = [] if seen.elsewhere else both
    names = {node.name for node in matched}
    others = ((node.name, nodegroups.other_name(node.name, seen.members)) for node in seen.nodes)
    renamed = tuple((name, other) for name, other in others if other and name not in names)
    groups = _matched_groups(matched, known) if matched else _virtual_groups(seen)
    types = {node.gpu_type for node in matched if node.gpu_type}
    gpu_resources = {name: found["resource"] for name in types if (found := _gpu_type(name, seen))}
    return Draft(
        text=HEADER + yamltext.document(_document(seen, wishes, groups)) + "\n",
        matched=tuple(sorted(names)),
        only_slurm=tuple(node.name for node in seen.nodes if node.name not in known),
        only_kubernetes=tuple(sorted(known.keys() - {node.name for node in both})),
        left_out=tuple(node.name for node in both if node.name not in names),
        renamed=renamed,
        remarks=tuple(_remarks(matched, known, gpu_resources, wishes)),
    )


def _document(seen: Seen, wishes: Wishes, groups: Mapping[str, Any]) -> dict[str, Any]:
    partition = _free_name(wishes.partition, seen.partitions)
    types = sorted({str(group["gpu_type"]) for group in groups.values() if "gpu_type" in group})
    kubernetes = {"kubeconfig": wishes.kubeconfig, "admin_kubeconfig": wishes.admin_kubeconfig}
    sections: dict[str, Any] = {
        "cluster": facts.site_name(seen.settings.get("ClusterName", "")),
        "slurm": _slurm(seen.settings),
        "kubernetes": {key: value for key, value in kubernetes.items() if value},
        "penstockd": {},
        "nas": {"path": wishes.nas} if wishes.nas else {},
        "registry": {"default_image": wishes.image} if wishes.image else {},
        "gpus": {name: _gpu_type(name, seen) for name in types},
        "node_groups": groups,
        "partitions": {partition: {"mode": "check", "nodes": list(groups)}},
        "intake": {},
        "results": {},
        "timeouts": _timeouts(seen.settings),
    }
    for section, values in wishes.overrides.items():
        sections[section] = {**sections[section], **values}
    return {key: value for key, value in sections.items() if value}


def _gpu_type(name: str, seen: Seen) -> dict[str, str]:
    """The resource name of a GPU type if its nodes advertise one that is not the default."""
    members = {member.name: member.allocatable for member in seen.members}
    nodes = [node for node in seen.nodes if node.gpu_type == name and node.name in members]
    found = {
        resource
        for node in nodes
        for resource, count in members[node.name].devices
        if count >= node.amount.gpus and not members[node.name].gpus
    }
    return {"resource": found.pop()} if len(found) == 1 else {}


def _slurm(settings: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"manage": "include"}
    for key, name in (("conf", "SLURM_CONF"), ("state_dir", "StateSaveLocation")):
        if settings.get(name):
            found[key] = settings[name]
    user = re.match(r"[^(]+", settings.get("SlurmUser", ""))
    if user:
        found["user"] = user[0]
    socket = re.search(r"socket=([^,]+)", settings.get("AuthInfo", ""))
    if socket:
        found["munge_socket"] = socket[1]
    if settings.get("MaxArraySize", "").isdigit():
        found["max_array_size"] = int(settings["MaxArraySize"])
    return found


def _timeouts(settings: Mapping[str, str]) -> dict[str, Any]:
    wait = re.match(r"\d+", settings.get("KillWait", ""))
    return {"kill_wait": int(wait[0])} if wait and int(wait[0]) != 30 else {}


def _matched_groups(matched: Sequence[Node], known: Mapping[str, nodegroups.Member]) -> dict[str, Any]:
    """Nodes on both sides, grouped by their size in Slurm, which stays."""
    groups: dict[str, Any] = {}
    for size, members in itertools.groupby(sorted(matched, key=_size), key=_size):
        cpus, memory, gpus, gpu_type = size
        names = ",".join(node.name for node in members)
        optional = {key: value for key, value in (("gpus", gpus), ("gpu_type", gpu_type)) if value}
        sizes = {"cpus": cpus, "memory": f"{memory}Mi", **optional}
        groups[f"nodes{len(groups) + 1}"] = {"nodes": names, **sizes}
    return groups


def _size(node: Node) -> tuple[int, int, int, str]:
    """CPUs, MiB, GPUs and their type, as in a site file."""
    amount = node.amount
    return amount.millicpus // 1000, amount.memory // 2**20, amount.gpus, node.gpu_type


def _virtual_groups(seen: Seen) -> dict[str, Any]:
    """Kubernetes' nodes that are not in Slurm, for slurmds on this host."""
    taken = {node.name for node in seen.nodes}
    names = ",".join(sorted(member.name for member in seen.members if member.name not in taken))
    slurmd = {"host": seen.host, "first_port": FIRST_PORT}
    if not names and taken & {member.name for member in seen.members}:
        raise errors.InstallError(
            "no node can be bridged: slurm.conf defines every node of Kubernetes, and slurmds run on other"
            f" hosts ({wording.some(sorted(seen.elsewhere))}), where hooks cannot reach penstockd's socket",
            hint="Remove the nodes that shall run pods from slurm.conf, then try again: Penstock defines"
            " them with slurmds on this host.",
        )
    return {"kubernetes": {"nodes": names, "size": "kubernetes", "slurmd": slurmd}} if names else {}


def _remarks(
    matched: Sequence[Node],
    known: Mapping[str, nodegroups.Member],
    gpu_resources: Mapping[str, str],
    wishes: Wishes,
) -> list[str]:
    remarks = []
    for node in matched:
        short = node.in_kubernetes(gpu_resources).amount.shortages(known[node.name].allocatable)
        remarks += [
            f"{node.name}: {each.what} is {each.needed} in Slurm, {each.free} allocatable in Kubernetes"
            for each in short
        ]
    remarks += _missing_gres(matched, known)
    if not wishes.nas:
        remarks.append("no NAS (--nas): output is streamed; no intake, no results folder")
    if not wishes.image:
        remarks.append("no default image (--image): every script needs #K8S_IMAGE=…")
    return remarks


def _missing_gres(matched: Sequence[Node], known: Mapping[str, nodegroups.Member]) -> Iterator[str]:
    """Nodes with more GPUs in Kubernetes than in Slurm: no job could request the others."""
    found: dict[tuple[int, int], list[str]] = {}
    for node in matched:
        there = known[node.name].allocatable
        gpus = there.gpus + sum(count for name, count in there.devices if _GPU.search(name))
        if gpus > node.amount.gpus:
            found.setdefault((gpus, node.amount.gpus), []).append(node.name)
    for (gpus, gres), names in found.items():
        yield (
            f"{wording.some(names, SHOWN)}: Kubernetes has {gpus} GPUs, Slurm's Gres {gres or 'none'}; "
            f"add Gres=gpu:{gpus} to slurm.conf and gres.conf, and call `penstock init` again"
        )


def _free_name(wanted: str, taken: Sequence[str]) -> str:
    names = (wanted if number == 1 else f"{wanted}{number}" for number in itertools.count(1))
    return next(name for name in names if name not in taken)
