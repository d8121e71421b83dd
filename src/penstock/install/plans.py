"""A plan: the changes between the live site and its goal, for `apply` and `uninstall`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock import wellknown
from penstock.install import inventory, queuedjobs, sitefiles
from penstock.install.transactions import FileChange, ObjectChange

Manifest = dict[str, Any]
NEEDS_RESTART = (
    "slurm.conf",
    wellknown.INCLUDE,
    "gres.conf",
    sitefiles.GRES_INCLUDE,
    "cgroup.conf",
    sitefiles.SLURMD_CONF,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """All changes, and the records after them."""

    files: tuple[FileChange, ...]
    objects: tuple[ObjectChange, ...]
    installed: inventory.Installed
    kept: tuple[str, ...] = ()
    """Objects and files of ours that stay, with the reason."""
    lost_records: str = ""
    """The folder of the records if they were lost and are written again."""
    accounts: tuple[tuple[str, ...], ...] = ()
    """Arguments of sacctmgr; run last and never rolled back."""
    links: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Symbolic links by their targets, which are changed in their place."""
    harms: tuple[queuedjobs.Harm, ...] = ()
    """Harm to queued jobs."""
    created: tuple[tuple[str, str, str], ...] = ()
    """Lines on what is created last and not rolled back: a kubeconfig, folders."""
    partitions_only: bool = False
    """slurmctld needs only `scontrol reconfigure`, since nothing but partitions changes."""
    contradictions: tuple[str, ...] = ()
    """Contradictions in the planned slurm.conf, with which slurmctld would not start."""

    @property
    def empty(self) -> bool:
        return not (self.files or self.objects or self.accounts or self.created or self.lost_records)

    @property
    def restart(self) -> bool:
        """Whether slurmctld must reread its configuration."""
        names = (Path(self.links.get(change.path, change.path)).name for change in self.files)
        return any(name in NEEDS_RESTART for name in names)

    def split(self, units: Path, installed: inventory.Installed) -> tuple[Plan, Plan | None]:
        """Two plans: everything but the files in this folder, and then those files, if any."""
        later = tuple(change for change in self.files if Path(change.path).parent == units)
        if not later:
            return self, None
        paths = {change.path for change in later}
        kept = {path: record for path, record in installed.files.items() if path in paths}
        between = msgspec.structs.replace(self.installed, files=self.installed.files | kept)
        now = tuple(change for change in self.files if change not in later)
        return (
            dataclasses.replace(self, files=now, installed=between),
            dataclasses.replace(self, files=later, objects=()),
        )

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """(add, change or remove; file or object; its name)"""
        for change in self.objects:
            name = name_of(change.after or change.before or {})
            yield _word(change.before or change.existed or None, change.after), "object", name
        for file in self.files:
            link = self.links.get(file.path)
            yield _word(file.before, file.after), "file", f"{link} -> {file.path}" if link else file.path
        if self.lost_records:
            yield "add", "records", self.lost_records
        if self.restart:
            yield "reload" if self.partitions_only else "restart", "daemon", "slurmctld"
        for command in self.accounts:
            yield ("add" if command[0] == "add" else "change"), "account", " ".join(command[1:])
        yield from self.created


def _word(before: object | None, after: object | None) -> str:
    if after is None:
        return "remove"
    return "add" if before is None else "change"


def name_of(manifest: Manifest) -> str:
    """Kind, namespace if any, and name."""
    home = manifest["metadata"].get("namespace", "")
    return f"{manifest['kind']} {home}{'/' if home else ''}{manifest['metadata']['name']}"


def contains(live: Any, wanted: Any) -> bool:
    """Whether the live object has all fields of the manifest; it may have more."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(
            contains(live.get(key), value) or (value in ({}, [], False) and not live.get(key))
            for key, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(live, list)
            and len(live) == len(wanted)
            and all(contains(one, other) for one, other in zip(live, wanted, strict=True))
        )
    return str(live) == str(wanted)
