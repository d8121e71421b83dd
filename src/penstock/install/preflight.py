"""What a site file says that this host or the cluster does not have: looked up before anything changes.

Nothing is run that could change anything, and everything is told at once, with its line in the site file.
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
"""Where in the site file, what was found, what to do."""
SHOWN = 10
ANSWER_SECONDS = 10.0
PYTHON = "/usr/bin/python3"


class Checks:
    """What speaks against a plan, gathered to be told at once."""

    def __init__(self, doubts: Iterable[str] = ()) -> None:
        self.doubts = list(doubts)
        """Whoever knows better may go on."""
        self.faults: list[str] = []
        """With these it cannot work."""

    @property
    def lines(self) -> tuple[str, ...]:
        return (*self.faults, *self.doubts)

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """An error in here is told with all that was found before."""
        try:
            yield
        except errors.PenstockError as error:
            if not self.lines:
                raise
            said = error.message.rpartition(": ")[2]
            same = [line for line in self.doubts if said in line]
            self.doubts = [line for line in self.doubts if line not in same]
            self.faults += same or [f"{error.message}; {error.hint}".removesuffix("; ")]
            self.require(force=False)

    def require(self, *, force: bool) -> None:
        """InstallError with everything; with force only when it cannot work."""
        if self.faults or (self.doubts and not force):
            hint = "Nothing was changed." + ("" if self.faults else " --force goes on all the same.")
            head = f"{wording.many(len(self.lines), 'thing')} must be put right first"
            raise errors.InstallError("\n".join((head, *self.lines)), hint=hint)


def checks(site: Site, site_file: Path, *, kubernetes: bool) -> Checks:
    """What can be known without a plan."""
    return Checks(shown(look(site, members(site) if kubernetes else None), site_file))


def look(site: Site, members: Sequence[nodegroups.Member] | None) -> Iterator[Mistake]:
    """Every mistake; `members` are the cluster's nodes, None when nobody could ask."""
    yield from _cluster(site)
    yield from _programs(site)
    yield from _folders(site)
    yield from _qos(site)
    if members is not None:
        yield from _nodes(site, members)


def members(site: Site) -> tuple[nodegroups.Member, ...] | None:
    """The cluster's nodes; None when it cannot be asked, which the plan says."""
    try:
        return kubeadmin.members(site)
    except errors.PenstockError:
        return None


def shown(mistakes: Iterable[Mistake], site_file: Path) -> tuple[str, ...]:
    """A line for each, with its place in the file, in the order of the file."""
    document = yamlreader.read(site_file.read_bytes())
    found = sorted(document.find(*mistake) for mistake in mistakes)
    return tuple(finding.shown(str(site_file)) for finding in found)


def _cluster(site: Site) -> Iterator[Mistake]:
    """Pods carry the cluster's name, and slurmctld starts with the state of no other cluster."""
    named, where = "", site.slurm.conf
    try:
        if site.slurm.manage == "include":
            named = facts.read_conf(site).get("ClusterName")
        else:
            where = f"{site.slurm.state_dir}/clustername"
            named = Path(where).read_text(encoding="utf-8").strip()
    except (errors.PenstockError, OSError, UnicodeDecodeError):
        return  # the plan needs slurm.conf, and a new slurmctld has no state
    if named and facts.site_name(named) != site.cluster:
        remedy = f"write `cluster: {facts.site_name(named)}`, or name the files of the right Slurm in `slurm`"
        yield ("cluster",), f"`{site.cluster}`, but {where} is of cluster {named}", remedy


# -- programs ------------------------------------------------------------------------------------------------
def _programs(site: Site) -> Iterator[Mistake]:
    for name in commands.NEEDED:
        if not _is_program(str(Path(site.slurm.commands_dir) / name)):
            folder = site.slurm.commands_dir
            remedy = "name the folder of Slurm's commands, or install slurm-client"
            yield ("slurm", "commands_dir"), f"there is no {name} in {folder}", remedy
    yield from _command(site.slurm.restart, ("slurm", "restart"), "slurmctld")
    if site.penstockd.restart:
        yield from _command(site.penstockd.restart, ("penstockd", "restart"), "penstockd")
    if site.penstockd.run == "systemd" and not installers.SYSTEMD.is_dir():
        remedy = "write `run: none` and start penstockd yourself, or `run: deployment`"
        yield ("penstockd", "run"), "`systemd`, but systemd does not run this host", remedy
    if (site.penstockd.run == "systemd" or site.penstockd.submit_filter) and not _is_program(
        site.penstockd.program
    ):
        remedy = "name the penstock command as `which penstock` shows it"
        yield ("penstockd", "program"), f"there is no program {site.penstockd.program}", remedy
    if site.nas is not None and site.results.hook is not None and not _is_program(site.results.hook):
        yield ("results", "hook"), f"there is no program {site.results.hook}", "install it, or leave it out"
    if not _is_program(PYTHON):
        yield ("penstockd", "libexec"), f"there is no {PYTHON}, which runs the hooks", "install python3"


def _command(argv: Sequence[str], place: Place, daemon: str) -> Iterator[Mistake]:
    """As far as can be told without running it."""
    name, remedy = argv[0], f"name a command that restarts {daemon}"
    if shutil.which(name) is None:
        yield place, f"there is no program {name}", remedy
    elif Path(name).name == "false":
        yield place, f"`{' '.join(argv)}` always fails", remedy
    elif Path(name).name == "systemctl" and not installers.SYSTEMD.is_dir():
        yield place, f"`{' '.join(argv)}`, but systemd does not run this host", remedy


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
        yield ("nas", "path"), message, "see that its file server is up"
        return
    if done.returncode:
        yield ("nas", "path"), f"there is no folder {path} on this host", "mount it, or correct the path"


def _qos(site: Site) -> Iterator[Mistake]:
    """slurmctld does not start with a partition whose QOS the accounting lacks."""
    wanted = {name: each.qos for name, each in site.partitions.items() if each.qos}
    known = accounts.qos_names(site) if wanted else None
    for name, qos in wanted.items():
        if known is not None and qos not in known:
            remedy = f"`sacctmgr add qos {qos}`, or take one of {wording.some(sorted(known), SHOWN)}"
            yield ("partitions", name, "qos"), f"Slurm's accounting has no QOS {qos}", remedy


def _nodes(site: Site, members: Sequence[nodegroups.Member]) -> Iterator[Mistake]:
    """Jobs would wait for a node that Kubernetes lacks; it need not have those of plain partitions."""
    known = {member.name for member in members}
    bridged = {name for each in site.partitions.values() if each.mode != "host" for name in each.nodes}
    for name, group in site.node_groups.items():
        missing = [node for node in crosschecks.nodes_of(group) if node not in known]
        if name in bridged and missing:
            message = f"Kubernetes has no node {wording.some(missing, SHOWN)}"
            yield ("node_groups", name, "nodes"), message, _remedy(missing, members)


def _remedy(missing: Sequence[str], members: Sequence[nodegroups.Member]) -> str:
    """Slurm lets a node have another name than its host."""
    for node in missing:
        other = nodegroups.other_name(node, members)
        if other:
            return (
                f"Kubernetes calls {node} {other}: "
                f"write NodeName={other} NodeHostname={node} into slurm.conf, and {other} here"
            )
    return "correct the names (`kubectl get nodes`), or join them to the cluster first"
