"""slurm.conf as text: what it sets and defines, and a change that can be taken back byte for byte.

Slurm takes the last of two equal settings and complains about the first; so a line that we replace is put
behind a mark instead, and what we add is one include line at the end. Taking the mark and that line away
gives the administrator's own text back, with whatever was edited since.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator
from typing import Final

from penstock.slurm import hostlists

MARK: Final = "#penstock# "
_SETTING = re.compile(r"\s*([A-Za-z]+)\s*=\s*(.*?)\s*$")
_INCLUDE = re.compile(r"\s*include\s+(\S+)", re.IGNORECASE)
_ROWS: Final = ("nodename", "partitionname", "nodeset", "downnodes", "frontendname", "slurmctldhost")
MAX_INCLUDES: Final = 100


@dataclasses.dataclass(frozen=True)
class Conf:
    """What slurm.conf says, names in small letters as Slurm does not tell them apart."""

    settings: dict[str, str]
    nodes: frozenset[str]
    partitions: frozenset[str]
    default_partition: str = ""

    def get(self, name: str) -> str:
        """A setting's value; empty when it has its default."""
        return self.settings.get(name.lower(), "")


def parse(text: str, *, include: Callable[[str], str]) -> Conf:
    """The whole configuration; `include` reads another file by the name that stands there."""
    settings: dict[str, str] = {}
    nodes: set[str] = set()
    partitions: list[str] = []
    default = ""
    for line in _lines(text, include, [0]):
        match = _SETTING.match(line)
        if match is None:
            continue
        name, value = match[1].lower(), match[2]
        if name == "nodename" and value.split()[0].upper() != "DEFAULT":
            nodes.update(hostlists.expand(value.split()[0]))
        elif name == "partitionname" and value.split()[0].upper() != "DEFAULT":
            partitions.append(value.split()[0])
            default = partitions[-1] if re.search(r"(?i)\bDefault=YES\b", value) else default
        elif name not in _ROWS:
            settings[name] = value
    return Conf(settings, frozenset(nodes), frozenset(partitions), default)


def _lines(text: str, include: Callable[[str], str], count: list[int]) -> Iterator[str]:
    """Logical lines: continued ones joined, comments gone, included files in place."""
    for line in text.replace("\\\n", " ").splitlines():
        plain = line.partition("#")[0]
        match = _INCLUDE.match(plain)
        if match is None:
            yield plain
            continue
        count[0] += 1
        if count[0] <= MAX_INCLUDES:
            yield from _lines(include(match[1]), include, count)


def bridged(text: str, *, include: str, settings: Collection[str]) -> str:
    """The text with our include file, and without the settings that it makes; nothing changes twice."""
    names = {name.lower() for name in settings}
    kept = []
    lines = plain(text, include=include).splitlines(keepends=True)
    for line in lines:
        match = _SETTING.match(line.partition("#")[0])
        kept.append(f"{MARK}{line}" if match and match[1].lower() in names else line)
    end = "" if not kept or kept[-1].endswith("\n") else "\n"
    return f"{''.join(kept)}{end}include {include}\n"


def plain(text: str, *, include: str) -> str:
    """The text as it was before `bridged`."""
    own = f"include {include}"
    lines = [line for line in text.splitlines(keepends=True) if line.strip() != own]
    return "".join(line.removeprefix(MARK) for line in lines)
