"""Checks before any change: does this host, and the cluster, have what the site file names?

The checks change nothing, and report everything at once, with its line in the site file.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from penstock import errors, wording
from penstock.install import accounts, facts, installers, kubeadmin
from penstock.site import crosschecks, nodegroups, yamlreader
from penstock.site.findings import Place
from penstock.site.schema import Site
from penstock.slurm import commands

Mistake = tuple[Place, str, str]
"""Place in the site file, what was found, what to do."""
SHOWN = 10
ANSWER_SECONDS = 10.0
PYTHON = "/usr/bin/python3"


class Checks:
    """Objections to a plan, collected to be reported at once."""

    def __init__(self, doubts: Iterable[str] = ()) -> None:
        self.doubts = list(doubts)
        """--force overrides these."""
        self.faults: list[str] = []
        """The plan cannot work with these."""

    @property
    def lines(self) -> tuple[str, ...]:
        return (*self.faults, *self.doubts)

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Report an error in this context together with all objections so far."""
        try:
            yield
        except errors.PenstockError as error:
            if not self.lines:
                raise
            reason = error.message.rpartition(": ")[2]
            same = [line for line in self.doubts if reason in line]
            self.doubts = [line for line in self.doubts if line not in same]
            self.faults += same or [f"{error.message}; {error.hint}".removesuffix("; ")]
            self.require(force=False)

    def require(self, *, force: bool) -> None:
        """Raise InstallError with all objections; with `force` only if there are faults."""
        if self.faults or (self.doubts and not force):
            hint = "Nothing was changed." + ("" if self.faults else " --force overrides this.")
            head = f"{wording.many(len(self.lines), 'problem')} must be fixed first"
            raise errors.InstallError("\n".join((head, *self.lines)), hint=hint)


def checks(site: Site, site_file: Path, *, kubernetes: bool) -> Checks:
    """Checks that need no plan."""
    return Checks(shown(look(site, members(site) if kubernetes else None), site_file))


def look(site: Site, members: Sequence[nodegroups.Member] | None) -> Iterator[Mistake]:
    """All mistakes; `members` are the cluster's nodes, None if unknown."""
    yield from _cluster(site)
    yield from _programs(site)
    yield from _folders(site)
    yield from _qos(site)
    if members is not None:
        yield from _nodes(site, members)


def members(site: Site) -> tuple[nodegroups.Member, ...] | None:
    """The cluster's nodes; None if it does not answer, which the plan reports."""
    try:
        return kubeadmin.members(site)
    except errors.PenstockError:
        return None


def shown(mistakes: Iterable[Mistake], site_file: Path) -> tuple[str, ...]:
    """A line for each mistake, with its position, in the order of the file."""
    document = yamlreader.read(site_file.read_bytes())
    found = sorted(document.find(*mistake) for mistake in mistakes)
    return tuple(finding.shown(str(site_file)) for finding in found)


def _cluster(site: Site) -> Iterator[Mistake]:
    """Compare `cluster` with ClusterName: it is a label of pods, and slurmctld refuses another's state."""
    named, where = "", site.slurm.conf
    try:
        if site.slurm.manage == "include":
            named = facts.read_conf(site).get("ClusterName")
        else:
            where = f"{site.slurm.state_dir}/clustername"
            named = Path(where).read_text(encoding="utf-8").strip()
    except (errors.PenstockError, OSError, UnicodeDecodeError):
        return  # the plan reports a missing slurm.conf; a new slurmctld has no state
    if named and facts.site_name(named) != site.cluster:
        remedy = f"write `cluster: {facts.site_name(named)}`, or correct the paths in `slurm`"
        yield ("cluster",), f"`{site.cluster}`, but {where} belongs to cluster {named}", remedy


# -- programs ------------------------------------------------------------------------------------------------
def _programs(site: Site) -> Iterator[Mistake]:
    folder = site.slurm.commands_dir
    for name in commands.NEEDED:
        if not _is_program(f"{folder}/{name}"):
            remedy = "name the folder of Slurm's commands, or install slurm-client"
            yield ("slurm", "commands_dir"), f"there is no {name} in {folder}", remedy
    yield from _command(site.slurm.restart, ("slurm", "restart"), "slurmctld")
    if site.penstockd.restart:
        yield from _command(site.penstockd.restart, ("penstockd", "restart"), "penstockd")
    if site.penstockd.run == "systemd" and not installers.SYSTEMD.is_dir():
        remedy = "write `run: none` and start penstockd yourself, or `run: deployment`"
        yield ("penstockd", "run"), "`systemd`, but this host does not run systemd", remedy
    is_used = site.penstockd.run == "systemd" or site.penstockd.submit_filter
    if is_used and not _is_program(site.penstockd.program):
        remedy = "write the path that `which penstock` shows"
        yield ("penstockd", "program"), f"there is no program {site.penstockd.program}", remedy
    if site.nas is not None and site.results.hook is not None and not _is_program(site.results.hook):
        yield ("results", "hook"), f"there is no program {site.results.hook}", "install it, or leave it out"
    if not _is_program(PYTHON):
        yield ("penstockd", "libexec"), f"there is no {PYTHON}, which runs the hooks", "install python3"


def _command(argv: Sequence[str], place: Place, daemon: str) -> Iterator[Mistake]:
    """Check a command without running it."""
    name, remedy = argv[0], f"name a command that restarts {daemon}"
    if shutil.which(name) is None:
        yield place, f"there is no program {name}", remedy
    elif Path(name).name == "false":
        yield place, f"`{' '.join(argv)}` always fails", remedy
    elif Path(name).name == "systemctl" and not installers.SYSTEMD.is_dir():
        yield place, f"`{' '.join(argv)}`, but this host does not run systemd", remedy


def _is_program(path: str) -> bool:
    return Path(path).is_file() and os.access(path, os.X_OK)


# -- folders and nodes ---------------------------------------------------------------------------------------
def _folders(site: Site) -> Iterator[Mistake]:
    if site.nas is None:
        return
    path = site.nas.path
    try:
        done = subprocess.run(("test", "-d", path), timeout=ANSWER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        message = f"{path} does not answer within {ANSWER_SECONDS:g} s"
        yield ("nas", "path"), message, "check its file server"
        return
    if done.returncode:
        yield ("nas", "path"), f"there is no folder {path} on this host", "mount it, or correct the path"


def _qos(site: Site) -> Iterator[Mistake]:
    """Check partitions' QOSes: slurmctld does not start if one is missing in the accounting."""
    wanted = {name: each.qos for name, each in site.partitions.items() if each.qos}
    known = accounts.qos_names(site) if wanted else None
    for name, qos in wanted.items():
        if known is not None and qos not in known:
            remedy = f"`sacctmgr add qos {qos}`, or take one of {wording.some(sorted(known), SHOWN)}"
            yield ("partitions", name, "qos"), f"Slurm's accounting has no QOS {qos}", remedy


def _nodes(site: Site, members: Sequence[nodegroups.Member]) -> Iterator[Mistake]:
    """Check that Kubernetes has all nodes of bridged partitions."""
    known = {member.name for member in members}
    bridged = {name for each in site.partitions.values() if each.mode != "host" for name in each.nodes}
    for name, group in site.node_groups.items():
        missing = [node for node in crosschecks.nodes_of(group) if node not in known]
        if name in bridged and missing:
            message = f"Kubernetes has no node {wording.some(missing, SHOWN)}"
            yield ("node_groups", name, "nodes"), message, _remedy(missing, members)


def _remedy(missing: Sequence[str], members: Sequence[nodegroups.Member]) -> str:
    for node in missing:
        other = nodegroups.other_name(node, members)
        if other:
            return (
                f"Kubernetes calls {node} {other}: "
                f"write NodeName={other} NodeHostname={node} into slurm.conf, and {other} here"
            )
    return "correct the names (see `kubectl get nodes`), or join the nodes to the cluster first"
