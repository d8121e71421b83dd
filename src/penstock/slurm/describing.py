"""Slurm's own description of itself: configuration, nodes and partitions as scontrol shows them."""

from __future__ import annotations

import dataclasses
import re

from penstock import errors
from penstock.model import resources, states
from penstock.slurm import commands, hostlists

_WORD = re.compile(r"(\w+(?::\w+)?)=(.*?)(?=\s+\w+(?::\w+)?=|\s*$)")
_GPUS = re.compile(r"(?<![^,])gpu(?::(?P<type>[^:,()]+))?:(?P<count>\d+)(?=[(,]|$)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlurmNode:
    """A node as slurmctld knows it; memory in MiB."""

    name: str
    state: str
    cpus: int
    memory_mb: int
    gpus: int
    gpu_type: str = ""
    """The first, where it has several."""
    gpus_by_type: resources.Devices = ()
    features: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    reason: str = ""
    address: str = ""
    """Where slurmctld finds its slurmd."""
    used_cpus: int = 0
    used_memory_mb: int = 0
    used_gpus: int = 0

    @property
    def starts_jobs(self) -> bool:
        """Whether Slurm gives it to jobs at all, now or when those that are there have ended."""
        words = states.words_of_node(self.state)
        return bool(words & states.OPEN) and not words & states.CLOSED

    @property
    def is_drained(self) -> bool:
        return bool(states.words_of_node(self.state) & states.DRAINED)

    @property
    def is_out_of_service(self) -> bool:
        return bool(states.words_of_node(self.state) & states.OUT_OF_SERVICE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlurmPartition:
    """A partition as slurmctld knows it."""

    name: str
    nodes: tuple[str, ...]
    default: bool


async def configuration(slurm_conf: str) -> dict[str, str]:
    """`scontrol show config`, by name."""
    text = await commands.run(("scontrol", "show", "config"), slurm_conf=slurm_conf)
    pairs = (line.partition("=") for line in text.split("\n") if "=" in line)
    return {name.strip(): _value(value) for name, _, value in pairs}


def _value(text: str) -> str:
    value = text.strip()
    return "" if value in ("(null)", "N/A") else value


async def nodes(slurm_conf: str) -> tuple[SlurmNode, ...]:
    """Every node."""
    text = await commands.run(("scontrol", "--oneliner", "show", "node"), slurm_conf=slurm_conf)
    return tuple(node(line) for line in text.split("\n") if line.startswith("NodeName="))


def node(line: str) -> SlurmNode:
    """One line of `scontrol -o show node`; SlurmError when it is none."""
    try:
        return _node(line)
    except (KeyError, ValueError):
        raise errors.SlurmError(
            f"scontrol printed a node that we do not understand: {line[:120]!r}"
        ) from None


def _node(line: str) -> SlurmNode:
    """The first of each name counts: a reason at the end of the line is free text."""
    words = {match[1]: _value(match[2]) for match in reversed(list(_WORD.finditer(line)))}
    gpus = list(_GPUS.finditer(words.get("Gres", "")))
    used = _tres(words.get("AllocTRES", ""))
    return SlurmNode(
        name=words["NodeName"],
        state=words.get("State", ""),
        cpus=int(words.get("CPUTot", 0)),
        memory_mb=int(words.get("RealMemory", 0)),
        gpus=sum(int(gpu["count"]) for gpu in gpus),
        gpu_type=next((gpu["type"] for gpu in gpus if gpu["type"]), ""),
        gpus_by_type=resources.devices((gpu["type"], int(gpu["count"])) for gpu in gpus if gpu["type"]),
        features=frozenset(filter(None, words.get("ActiveFeatures", "").split(","))),
        partitions=frozenset(filter(None, words.get("Partitions", "").split(","))),
        reason=words.get("Reason", ""),
        address=words.get("NodeAddr", ""),
        used_cpus=int(words.get("CPUAlloc", 0)),
        used_memory_mb=int(words.get("AllocMem", 0)),
        used_gpus=int(used.get("gres/gpu", 0)),
    )


def _tres(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in text.split(",") if "=" in word)


async def partitions(slurm_conf: str) -> tuple[SlurmPartition, ...]:
    """Every partition."""
    text = await commands.run(("scontrol", "--oneliner", "show", "partition"), slurm_conf=slurm_conf)
    return tuple(_partition(line) for line in text.split("\n") if line.startswith("PartitionName="))


async def partition_names(slurm_conf: str, *, within: float) -> tuple[str, ...]:
    """The same by name alone, hidden ones, too."""
    argv = ("sinfo", "--noheader", "--all", "--format=%R")
    text = await commands.run(argv, slurm_conf=slurm_conf, within=within)
    return tuple(dict.fromkeys(text.split()))


def _partition(line: str) -> SlurmPartition:
    words = {match[1]: _value(match[2]) for match in _WORD.finditer(line)}
    return SlurmPartition(
        name=words["PartitionName"],
        nodes=hostlists.expand(words.get("Nodes", "")),
        default=words.get("Default", "") == "YES",
    )
