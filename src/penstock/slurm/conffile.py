"""slurm.conf as text: its settings and definitions, and a change that can be undone byte for byte.

Of two equal settings Slurm takes the last and complains. So lines that we replace are commented out with a
mark, and one include line is added at the end. Removing the marks and that line restores the
administrator's text, with later edits.

Of two settings on one line, other than those of nodes and partitions, Slurm rejects the second.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from penstock import errors
from penstock.slurm import hostlists

MARK: Final = "#penstock# "
STOP: Final = "#penstock: the line before ends here"
"""Before our include line, if the last line would continue with it."""
NO_END: Final = "#penstock: the line before had no line feed"
"""The same if the file ended without a line feed, which is then restored."""
_SETTING = re.compile(r"\s*([A-Za-z]+)\s*=\s*(.*?)\s*$")
_PARTITION = re.compile(r"PartitionName\s*=", re.IGNORECASE)
_OPTION = re.compile(r'([A-Za-z]+)\s*=\s*("[^"]*"|\S+)')
_PHYSICAL = re.compile(r"[^\n]*\n|[^\n]+")
_COMMENT = re.compile(r"(?<!\\)(?:\\\\)*(#.*)", re.DOTALL)
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*(\\\s*)$")
_ESCAPED = re.compile(r"\\(.)")
_INCLUDE = re.compile(r"\s*include\s+(\S+)", re.IGNORECASE)
_RELATIVE = re.compile(rb"^(\s*include\s+)(?=[^/\s])", re.IGNORECASE | re.MULTILINE)
_ROWS: Final = ("nodename", "partitionname", "nodeset", "downnodes", "frontendname", "slurmctldhost")
_HOSTS: Final = ("nodeaddr", "nodehostname")
MAX_INCLUDES: Final = 100


@dataclasses.dataclass(frozen=True)
class Conf:
    """The content of slurm.conf; names are in lower case, as Slurm ignores case."""

    settings: dict[str, str]
    nodes: frozenset[str]
    partitions: frozenset[str]
    default_partition: str = ""
    rows: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    """Options of each partition's line, names in lower case."""
    features: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    """By node, of those that have any."""
    values: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """All values of each setting, in order."""
    addresses: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """By node, of those with a NodeAddr or NodeHostname."""

    def address_of(self, node: str) -> str:
        """The address of the node's slurmd."""
        return self.addresses.get(node, node)

    def get(self, name: str) -> str:
        """A setting's value; empty for the default."""
        return self.settings.get(name.lower(), "")


def parse(text: str, *, include: Callable[[str], str]) -> Conf:
    """The whole configuration; `include` reads an included file by its name."""
    settings: dict[str, str] = {}
    values: dict[str, tuple[str, ...]] = {}
    tables: dict[str, dict[str, dict[str, str]]] = {"nodename": {}, "partitionname": {}}
    usual: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    for line in _lines(text, include, [0]):
        match = _SETTING.match(line)
        if match is None:
            continue
        name, value = match[1].lower(), match[2]
        if name in tables:
            _row(value, tables[name], usual[name], expand=name == "nodename")
        elif name not in _ROWS:
            settings[name] = value.strip('"')
            values[name] = (*values.get(name, ()), settings[name])
    nodes, partitions = tables.values()
    default = [name for name, row in partitions.items() if row.get("default", "").upper() == "YES"]
    features = {
        name: frozenset(filter(None, row.get("features", "").split(","))) for name, row in nodes.items()
    }
    addresses = {name: next((row[key] for key in _HOSTS if row.get(key)), "") for name, row in nodes.items()}
    return Conf(
        settings,
        frozenset(nodes),
        frozenset(partitions),
        default[-1] if default else "",
        rows=partitions,
        features={name: found for name, found in features.items() if found},
        values=values,
        addresses={name: found for name, found in addresses.items() if found},
    )


def besides_partitions(text: str, *, include: Callable[[str], str]) -> tuple[str, ...]:
    """All lines except those of partitions, which `scontrol reconfigure` rereads."""
    lines = (" ".join(line.split()) for line in _lines(text, include, [0]))
    return tuple(line for line in lines if line and not _PARTITION.match(line))


def contradictions(text: str, *, include: Callable[[str], str]) -> tuple[str, ...]:
    """Nodes and partitions that are defined twice, and undefined nodes of partitions.

    With any of them slurmctld does not start, while Slurm's commands accept the file.
    """
    rows = [
        (match[1].lower(), match[2]) for line in _lines(text, include, [0]) if (match := _SETTING.match(line))
    ]
    nodes = [name for key in _keys(rows, "nodename") for name in _expanded(key)]
    known = {*nodes, *_keys(rows, "nodeset")}
    return (
        *(f"node {name} is defined twice" for name in _repeated(nodes)),
        *(f"partition {name} is defined twice" for name in _repeated(_keys(rows, "partitionname"))),
        *(
            f"partition {partition} has node {name}, which no NodeName line defines"
            for partition, name in _members(rows)
            if name not in known and name.upper() != "ALL"
        ),
    )


def _keys(rows: Iterable[tuple[str, str]], kind: str) -> list[str]:
    """Names that lines of this kind define, except DEFAULT."""
    keys = [value.split(None, 1)[0] for name, value in rows if name == kind and value]
    return [key for key in keys if key.upper() != "DEFAULT"]


def _members(rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Pairs of a partition and a node."""
    table: dict[str, dict[str, str]] = {}
    usual: dict[str, str] = {}
    for name, value in rows:
        if name == "partitionname":
            _row(value, table, usual, expand=False)
    for partition, row in table.items():
        yield from ((partition, node) for node in _expanded(row.get("nodes", "")))


def _expanded(names: str) -> tuple[str, ...]:
    """Empty for an invalid host list: Slurm reports that itself."""
    try:
        return hostlists.expand(names)
    except errors.SlurmError:
        return ()


def _repeated(names: Iterable[str]) -> list[str]:
    counts = collections.Counter(names)
    return [name for name, count in counts.items() if count > 1]


def _row(value: str, table: dict[str, dict[str, str]], usual: dict[str, str], *, expand: bool) -> None:
    """A node's or partition's line; a DEFAULT line applies to all after it."""
    key, rest = (*value.split(None, 1), "", "")[:2]
    options = {_option(match[1]): match[2].strip('"') for match in _OPTION.finditer(rest)}
    if not key or key.upper() == "DEFAULT":
        usual.update(options)
        return
    names = hostlists.expand(key) if expand else (key,)
    for number, name in enumerate(names):
        own = {option: _nth(options[option], number, len(names)) for option in _HOSTS if option in options}
        table[name] = table.get(name, {}) | usual | options | own


def _option(name: str) -> str:
    """Slurm accepts two names for features."""
    return "features" if name.lower() == "feature" else name.lower()


def _nth(words: str, number: int, count: int) -> str:
    """This node's host, from a list with one host per node."""
    found = _expanded(words)
    return found[number] if len(found) == count else words


def _lines(text: str, include: Callable[[str], str], count: list[int]) -> Iterator[str]:
    """Logical lines, with included files in place."""
    for logical in _logical(text):
        joined = "".join(_content(line)[0] for line in logical)
        match = _INCLUDE.match(joined)
        if match is None:
            yield joined
            continue
        count[0] += 1
        if count[0] <= MAX_INCLUDES:
            yield from _lines(include(match[1]), include, count)


def _logical(text: str) -> Iterator[list[str]]:
    """Physical lines of each logical line. A comment ends before line continuation is checked."""
    lines: list[str] = []
    for line in _PHYSICAL.findall(text):
        lines.append(line)
        if not _content(line)[1]:
            yield lines
            lines = []
    if lines:
        yield lines


def _content(line: str) -> tuple[str, bool]:
    """A line without its comment, and whether the next line continues it."""
    comment = _COMMENT.search(line)
    plain = line[: comment.start(1)] if comment else line
    continued = _CONTINUED.search(plain)
    if continued:
        plain = plain[: continued.start(1)]
    return _ESCAPED.sub(r"\1", plain).rstrip("\r\n"), continued is not None


def bridged(text: str, *, include: str, settings: Collection[str]) -> str:
    """The text with our include line, and without settings that the include file makes. Idempotent."""
    names = {name.lower() for name in settings}
    kept: list[str] = []
    for logical in _logical(plain(text, include=include)):
        match = _SETTING.match("".join(_content(line)[0] for line in logical))
        mark = MARK if match and match[1].lower() in names else ""
        kept += (f"{mark}{line}" for line in logical)
    end = "" if not kept or kept[-1].endswith("\n") else f"\n{NO_END}\n"
    if kept and not end and _content(kept[-1])[1]:
        end = f"{STOP}\n"
    return f"{''.join(kept)}{end}include {include}\n"


def plain(text: str, *, include: str) -> str:
    """The text before `bridged`."""
    own = (f"include {include}", STOP, NO_END)
    kept: list[str] = []
    had_end = True
    for line in _PHYSICAL.findall(text):
        if line.strip() not in own:
            kept.append(line.removeprefix(MARK))
            had_end = True
        elif line.strip() == NO_END:
            had_end = False
    found = "".join(kept)
    return found if had_end else found.removesuffix("\n")


def with_absolute_includes(text: bytes, folder: Path) -> bytes:
    """The text for another folder: relative includes become absolute."""
    return _RELATIVE.sub(rb"\g<1>" + os.fsencode(folder).replace(b"\\", rb"\\") + b"/", text)
