"""Parses nodes, partitions and settings as scontrol prints them, line by line."""

from __future__ import annotations

import re

from penstock import errors
from penstock.model import nodes, resources
from penstock.slurm import hostlists

_WORD = re.compile(r"(\w+(?::\w+)?)=(.*?)(?=\s+\w+(?::\w+)?=|\s*$)")
_GPUS = re.compile(r"(?<![^,])gpu(?::(?P<type>[^:,()]+))?:(?P<count>\d+)(?=[(,]|$)")


def settings(text: str) -> dict[str, str]:
    """`scontrol show config`, by name."""
    pairs = (line.partition("=") for line in text.split("\n") if "=" in line)
    return {name.strip(): _value(value) for name, _, value in pairs}


def node(line: str) -> nodes.Node:
    """One line of `scontrol --oneliner show node`. SlurmError if it is not one."""
    try:
        return _node(line)
    except (KeyError, ValueError):
        raise errors.SlurmError(
            f"scontrol printed a node that we do not understand: {line[:120]!r}"
        ) from None


def _node(line: str) -> nodes.Node:
    words = _words(line)
    gpus = list(_GPUS.finditer(words.get("Gres", "")))
    used = dict(word.split("=", 1) for word in words.get("AllocTRES", "").split(",") if "=" in word)
    return nodes.Node(
        name=words["NodeName"],
        state=words.get("State", ""),
        amount=_amount(words, "CPUTot", "RealMemory", gpus=sum(int(gpu["count"]) for gpu in gpus)),
        used=_amount(words, "CPUAlloc", "AllocMem", gpus=int(used.get("gres/gpu", 0))),
        gpu_type=next((gpu["type"] for gpu in gpus if gpu["type"]), ""),
        gpus_by_type=resources.devices((gpu["type"], int(gpu["count"])) for gpu in gpus if gpu["type"]),
        features=_names(words, "ActiveFeatures"),
        partitions=_names(words, "Partitions"),
        reason=words.get("Reason", ""),
        address=words.get("NodeAddr", ""),
    )


def _amount(words: dict[str, str], cpus: str, memory: str, *, gpus: int) -> resources.Amount:
    """Slurm counts memory in MiB."""
    return resources.Amount(
        millicpus=1000 * int(words.get(cpus, 0)), memory=2**20 * int(words.get(memory, 0)), gpus=gpus
    )


def _names(words: dict[str, str], key: str) -> frozenset[str]:
    return frozenset(filter(None, words.get(key, "").split(",")))


def partition(line: str) -> nodes.Partition:
    """One line of `scontrol --oneliner show partition`."""
    words = _words(line)
    return nodes.Partition(
        name=words["PartitionName"],
        nodes=hostlists.expand(words.get("Nodes", "")),
        is_default=words.get("Default") == "YES",
    )


def _words(line: str) -> dict[str, str]:
    """The first of equal names counts: the reason at the end of the line is free text."""
    return {match[1]: _value(match[2]) for match in reversed(list(_WORD.finditer(line)))}


def _value(text: str) -> str:
    value = text.strip()
    return "" if value in ("(null)", "N/A") else value
