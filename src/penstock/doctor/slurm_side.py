"""Slurm's side: daemons, what slurmctld really runs with, hooks, accounting, times."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from penstock import errors, wellknown, wording
from penstock.doctor import slurmds
from penstock.doctor.checks import Fix, Problem, Registry, Skip
from penstock.doctor.live import Live
from penstock.install import facts, reach, sitefiles
from penstock.model import releases
from penstock.nas import atomic
from penstock.render import includes
from penstock.site import clusters, policies
from penstock.slurm import hostlists

registry = Registry()
SECONDS = 10.0
LONGEST_CREDENTIAL = 60
APPLY = "penstock apply"
_WHO_AND_WHEN = re.compile(r"\s*\[[^\[\]]*@[^\[\]]*\]$")
"""What Slurm adds to the reason of a node, differently for each."""


@registry.add("slurm-release", "Slurm is a release that Penstock knows")
def slurm_release(live: Live) -> Iterator[Problem]:
    found, said = facts.installed_release(), clusters.release_of(live.site)
    if found < releases.OLDEST:
        yield Problem(
            f"Slurm {releases.text(found)} is older than {releases.text(releases.OLDEST)}", "upgrade Slurm"
        )
    if said is not None and said != found:
        words = releases.text(found)
        yield Problem(
            f"the site file says Slurm {live.site.slurm.release}, installed is {words}",
            f'write release: "{words}" or leave it out',
        )


@registry.add("munge", "munge encodes and decodes")
def munge(live: Live) -> Iterator[Problem]:
    socket = live.site.slurm.munge_socket
    try:
        made = subprocess.run(
            ["munge", f"--socket={socket}", "--no-input"], capture_output=True, timeout=SECONDS, check=False
        )
        read = subprocess.run(
            ["unmunge", f"--socket={socket}", "--no-output"],
            input=made.stdout,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Problem(f"munge cannot be asked: {error}", "install munge, or correct slurm.munge_socket")
        return
    if made.returncode or read.returncode:
        said = (made.stderr or read.stderr).decode(errors="replace").strip().rpartition("\n")[2]
        yield Problem(
            f"munge on {socket} does not work: {said or 'no word'}",
            "start munged; its key must be the same on all hosts",
        )


@registry.add("slurmctld", "slurmctld answers")
def slurmctld(live: Live) -> Iterator[Problem]:
    try:
        version = live.settings.get("SLURM_VERSION")
    except errors.SlurmUnavailable as error:
        remedy = "start it, and look at its log if it ends"
        yield Problem(f"slurmctld does not answer ({error.message})", remedy, cause=error)
        return
    if not version:
        yield Problem("slurmctld says nothing of itself", "look at its log")


@registry.add("partitions", "Slurm has the partitions of the site file, with their nodes")
def partitions(live: Live) -> Iterator[Problem]:
    for name, partition in live.site.partitions.items():
        found = live.slurm_partitions.get(name)
        if found is None:
            yield Problem(f"slurmctld has no partition {name}", f"`{APPLY}`")
            continue
        wanted = {node.name for group in partition.nodes for node in live.facts.groups.get(group, ())}
        if wanted != set(found.nodes):
            odd = hostlists.fold(sorted(wanted ^ set(found.nodes)))
            yield Problem(f"partition {name} has other nodes than the site file says: {odd}", f"`{APPLY}`")


@registry.add("slurmd-hosts", "slurmds of bridged nodes can reach penstockd, and no other runs its hooks")
def slurmd_hosts(live: Live) -> Iterator[Problem]:
    found = list(reach.problems(live.site, live.facts))
    yield from (Problem(sentence, reach.REMEDY) for sentence in found)
    known = (live.slurm_nodes.get(name) for name in live.bridged_nodes)
    away = [node.name for node in known if node and node.address and not reach.is_here(node.address)]
    if away and not found:
        yield Problem(
            f"slurmctld has the slurmds of {wording.some(away)} on other hosts, which cannot reach penstockd",
            f"`{APPLY}`, then start them on this host",
        )


@registry.add("hooks-installed", "every hook is where it should be")
def hooks_installed(live: Live) -> Iterator[Problem]:
    for file in _hook_files(live):
        if not file.path.exists():
            yield Problem(
                f"{file.path} is missing", f"`penstock doctor --fix` or `{APPLY}`", fix=_writer(file)
            )


@registry.add("hooks-executable", "Slurm may run every hook")
def hooks_executable(live: Live) -> Iterator[Problem]:
    for file in _hook_files(live):
        if file.mode & 0o111 and file.path.exists() and not file.path.stat().st_mode & 0o001:
            yield Problem(
                f"{file.path} is not executable for everybody",
                f"chmod 755 {file.path}",
                fix=functools.partial(file.path.chmod, 0o755),
            )


@registry.add("hooks-current", "hooks are of this version and of this site file")
def hooks_current(live: Live) -> Iterator[Problem]:
    for file in _hook_files(live):
        if file.path.exists() and file.path.read_bytes() != file.content:
            is_lua = file.path.name == wellknown.JOB_SUBMIT
            remedy = f"`{APPLY}`" if is_lua else f"`penstock doctor --fix` or `{APPLY}`"
            yield Problem(
                f"{file.path} is of another version or site", remedy, fix=None if is_lua else _writer(file)
            )


def _hook_files(live: Live) -> list[sitefiles.File]:
    return [file for file in live.files if file.kind == "hooks"]


def _writer(file: sitefiles.File) -> Fix:
    def write() -> None:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(file.path, file.content, mode=file.mode)

    return write


@registry.add("hooks-interpreter", "the hooks' interpreter is there")
def hooks_interpreter(live: Live) -> Iterator[Problem]:
    if not os.access("/usr/bin/python3", os.X_OK):
        yield Problem("/usr/bin/python3 is missing", "install Python 3 on every host that runs a slurmd")


@registry.add("job-submit", "job_submit.lua is Penstock's, together with the site's own")
def job_submit(live: Live) -> Iterator[Problem]:
    if "lua" not in live.settings.get("JobSubmitPlugins", "").split(","):
        yield Problem(
            "slurmctld runs without JobSubmitPlugins=lua: scripts would run on the node itself",
            f"`{APPLY}`, or restart slurmctld when slurm.conf has it",
        )
    path = Path(live.site.slurm.conf).parent / wellknown.JOB_SUBMIT
    wanted = next((file for file in live.files if file.path == path), None)
    if wanted and path.exists() and path.read_bytes() != wanted.content:
        yield Problem(
            f"{path} is not Penstock's: scripts would run on the node itself",
            f"`{APPLY}` puts it aside and runs it before ours",
        )


@registry.add("prolog", "PrologSlurmctld is active")
def prolog(live: Live) -> Iterator[Problem]:
    yield from _active(live, "PrologSlurmctld", "jobs would start unchecked")


@registry.add("epilog", "Epilog is active")
def epilog(live: Live) -> Iterator[Problem]:
    danger = "nodes would be freed while pods still run"
    if sitefiles.describe(live.site, live.facts).hooks_everywhere:
        yield from _active(live, "Epilog", danger)
        return
    wanted = str(sitefiles.conf_of_slurmds(live.site, live.facts))
    for name, conf in slurmds.confs().items():
        if name in live.bridged_nodes and conf != wanted:
            yield Problem(
                f"the slurmd of {name} reads {conf or 'slurm.conf'}, not {wanted}: {danger}",
                f"start it with -f {wanted}, as the unit penstock-slurmd@{name} does",
            )


@registry.add("steps", "steps of bridged jobs are stopped: TaskProlog or the PAM session is active")
def steps(live: Live) -> Iterator[Problem]:
    if not sitefiles.describe(live.site, live.facts).hooks_everywhere:
        raise Skip("in the file that slurmds of bridged nodes read: see epilog and slurm-files")
    if live.site.slurm.pam_file is not None:
        if live.settings.get("UsePam", "").lower() not in ("1", "yes"):
            yield Problem(
                "slurmctld runs without UsePAM: steps would run on the Slurm node itself", f"`{APPLY}`"
            )
        return
    yield from _active(live, "TaskProlog", "steps would run on the Slurm node itself")


def _active(live: Live, setting: str, danger: str) -> Iterator[Problem]:
    hooks = sitefiles.describe(live.site, live.facts).hooks
    if hooks is None:
        raise Skip("no partition is bridged")
    programs = (hooks.prolog_slurmctld, hooks.epilog, hooks.task_prolog)
    wanted = dict(zip(includes.HOOK_SETTINGS, programs, strict=True))[setting]
    runs = _running(live, setting)
    if runs == wanted:
        return
    if live.conf.get(setting) == wanted:
        how = "restart slurmctld" if setting == "PrologSlurmctld" else "`scontrol reconfigure`"
        yield Problem(
            f"slurm.conf has {setting}, but it is not active: {danger}", f"{how}: it is read at start"
        )
    else:
        yield Problem(f"{setting} is {runs or 'not set'}, not {wanted}: {danger}", f"`{APPLY}`")


def _running(live: Live, setting: str) -> str:
    """Later releases show lists as Epilog[0]."""
    return live.settings.get(setting, "") or live.settings.get(f"{setting}[0]", "")


@registry.add("slurm-files", "slurm.conf and what it includes are as rendered")
def slurm_files(live: Live) -> Iterator[Problem]:
    for file in live.files:
        if file.kind == "slurm" and (not file.path.exists() or file.path.read_bytes() != file.content):
            yield Problem(
                f"{file.path} is not what the site file says", "`penstock render --diff` shows it", True
            )
    if live.site.slurm.manage == "include":
        text = Path(live.site.slurm.conf).read_text(errors="replace")
        if f"include {facts.include_path(live.site)}" not in text:
            yield Problem(f"{live.site.slurm.conf} does not include Penstock's file", f"`{APPLY}`")


@registry.add("cred-expire", "a job that was sent back is tried again soon")
def cred_expire(live: Live) -> Iterator[Problem]:
    match = re.search(r"cred_expire=(\d+)", live.settings.get("AuthInfo", ""))
    seconds = int(match[1]) if match else 120
    if seconds > LONGEST_CREDENTIAL:
        yield Problem(
            f"credentials live {seconds} s: a job that was sent back waits that long",
            "AuthInfo=…,cred_expire=10 in slurm.conf, and restart slurmctld",
            True,
        )


@registry.add("timeouts", "times are in the right order: KillWait < release < PrologEpilogTimeout")
def timeouts(live: Live) -> Iterator[Problem]:
    kill, release = _seconds(live, "KillWait"), live.site.timeouts.release
    if kill is not None and kill >= release:
        yield Problem(
            f"KillWait {kill} s is not below the Epilog's patience of {release} s",
            "lower KillWait, or raise timeouts.release and timeouts.epilog",
        )
    if kill is not None and kill != live.site.timeouts.kill_wait:
        yield Problem(
            f"KillWait is {kill} s, the site file says {live.site.timeouts.kill_wait} s",
            "make them equal: pods get the site file's as their grace",
            True,
        )
    everywhere = sitefiles.describe(live.site, live.facts).hooks_everywhere
    limit = _seconds(live, "PrologEpilogTimeout") or _seconds(live, "EpilogTimeout")
    if everywhere and limit is not None and limit <= release:
        yield Problem(
            f"Slurm ends an Epilog after {limit} s, before it gives up by itself ({release} s)",
            "raise PrologEpilogTimeout, or lower timeouts.release: nodes would be drained",
        )


def _seconds(live: Live, setting: str) -> int | None:
    match = re.match(r"\d+", live.settings.get(setting, ""))
    return int(match[0]) if match else None


@registry.add("accounting", "jobs are accounted for")
def accounting(live: Live) -> Iterator[Problem]:
    kind = live.settings.get("AccountingStorageType", "")
    if not kind.endswith("slurmdbd"):
        yield Problem(
            f"AccountingStorageType is {kind or 'none'}: no sacct, no fairshare, no limits",
            "set up slurmdbd",
            True,
        )
    elif "job_comment" not in live.settings.get("AccountingStoreFlags", ""):
        yield Problem("the reasons in jobs' comments are not kept", "AccountingStoreFlags=job_comment", True)


@registry.add("memory-default", "a job without --mem does not take a whole node")
def memory_default(live: Live) -> Iterator[Problem]:
    if not _seconds(live, "DefMemPerCPU") and not _seconds(live, "DefMemPerNode"):
        yield Problem(
            "DefMemPerCPU is not set: every job without --mem takes all memory of its node",
            "set DefMemPerCPU in slurm.conf",
            True,
        )


@registry.add("select-type", "Slurm counts CPUs, memory and GPUs one by one")
def select_type(live: Live) -> Iterator[Problem]:
    kind = live.settings.get("SelectType", "")
    if not kind.endswith("cons_tres"):
        yield Problem(f"SelectType is {kind}", "SelectType=select/cons_tres", True)


@registry.add("drained", "no node is drained or down")
def drained(live: Live) -> Iterator[Problem]:
    for name in live.bridged_nodes:
        node = live.slurm_nodes.get(name)
        if node is None:
            yield Problem("Slurm has no node {nodes}", f"`{APPLY}`", nodes=(name,))
            continue
        reason = _WHO_AND_WHEN.sub("", node.reason)
        if node.is_drained and reason.startswith("penstock"):
            remedy = "penstockd frees it once its pods are gone; is penstockd well?"
            yield Problem(f"{{nodes}} is drained by Penstock: {reason}", remedy, True, nodes=(name,))
        elif node.is_drained and reason.startswith("Epilog error"):
            message = (
                "{nodes} is drained because an Epilog failed; penstockd frees it only if that was its own"
            )
            remedy = "slurmd's log says which; when it is well: scontrol update NodeName={nodes} State=RESUME"
            yield Problem(message, remedy, True, nodes=(name,))
        elif node.is_out_of_service:
            remedy = "scontrol update NodeName={nodes} State=RESUME once it is well"
            message = f"{{nodes}} is {node.state}: {reason or 'no reason given'}"
            yield Problem(message, remedy, True, nodes=(name,))


@registry.add("penstockd-config", "penstockd's settings are those of the site file")
def penstockd_config(live: Live) -> Iterator[Problem]:
    for file in live.files:
        if file.kind == "penstockd" and (not file.path.exists() or file.path.read_bytes() != file.content):
            yield Problem(
                f"{file.path} is not what the site file says",
                "`penstock doctor --fix`, then restart penstockd",
                fix=_writer(file),
            )


@registry.add("shared-mounts", "folders that pods see exist here")
def shared_mounts(live: Live) -> Iterator[Problem]:
    for mount in policies.resolved(live.site).shared_mounts:
        if not Path(mount).is_dir():
            yield Problem(f"{mount} is not there", "mount it: scripts are submitted from it and write to it")
