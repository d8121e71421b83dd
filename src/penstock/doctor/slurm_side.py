"""Checks of Slurm: its daemons, running configuration, hooks, accounting, timeouts."""

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
"""User and time, which Slurm appends to a node's reason."""


@registry.add("slurm-release", "this release of Slurm is supported")
def slurm_release(live: Live) -> Iterator[Problem]:
    found, named = facts.installed_release(), clusters.release_of(live.site)
    if found < releases.OLDEST:
        yield Problem(
            f"Slurm {releases.text(found)} is older than {releases.text(releases.OLDEST)}", "upgrade Slurm"
        )
    if named is not None and named != found:
        words = releases.text(found)
        message = f"the site file says Slurm {live.site.slurm.release}, but {words} is installed"
        yield Problem(message, f'write release: "{words}" or leave it out')


@registry.add("munge", "munge encodes and decodes")
def munge(live: Live) -> Iterator[Problem]:
    socket = live.site.slurm.munge_socket
    try:
        made = _run("munge", f"--socket={socket}", "--no-input")
        read = _run("unmunge", f"--socket={socket}", "--no-output", stdin=made.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Problem(f"cannot run munge: {error}", "install munge, or correct slurm.munge_socket")
        return
    if made.returncode or read.returncode:
        reason = (made.stderr or read.stderr).decode(errors="replace").strip().rpartition("\n")[2]
        message = f"munge on {socket} does not work: {reason or 'no error message'}"
        yield Problem(message, "start munged; its key must be the same on all hosts")


def _run(*command: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, input=stdin, capture_output=True, timeout=SECONDS, check=False)


@registry.add("slurmctld", "slurmctld answers")
def slurmctld(live: Live) -> Iterator[Problem]:
    try:
        version = live.settings.get("SLURM_VERSION")
    except errors.SlurmUnavailable as error:
        remedy = "start it; if it ends, see its log"
        yield Problem(f"slurmctld does not answer ({error.message})", remedy, cause=error)
        return
    if not version:
        yield Problem("slurmctld reports no version", "see its log")


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
            yield Problem(f"nodes of partition {name} differ from the site file: {odd}", f"`{APPLY}`")


@registry.add("slurmd-hosts", "slurmds of bridged nodes can reach penstockd, and no others run its hooks")
def slurmd_hosts(live: Live) -> Iterator[Problem]:
    found = list(reach.problems(live.site, live.facts))
    yield from (Problem(sentence, reach.REMEDY) for sentence in found)
    known = (live.slurm_nodes.get(name) for name in live.bridged_nodes)
    away = [node.name for node in known if node and node.address and not reach.is_here(node.address)]
    if away and not found:
        message = f"slurmds of {wording.some(away)} are on other hosts, which cannot reach penstockd"
        yield Problem(message, f"`{APPLY}`, then start them on this host")


@registry.add("hooks-installed", "every hook is installed")
def hooks_installed(live: Live) -> Iterator[Problem]:
    for file in _files(live, "hooks"):
        if not file.path.exists():
            remedy = f"`penstock doctor --fix` or `{APPLY}`"
            yield Problem(f"{file.path} is missing", remedy, fix=_writer(file))


@registry.add("hooks-executable", "every hook is executable")
def hooks_executable(live: Live) -> Iterator[Problem]:
    for file in _files(live, "hooks"):
        if file.mode & 0o111 and file.path.exists() and not file.path.stat().st_mode & 0o001:
            fix = functools.partial(file.path.chmod, 0o755)
            yield Problem(f"{file.path} is not executable for everybody", f"chmod 755 {file.path}", fix=fix)


@registry.add("hooks-current", "hooks are those of this version and site file")
def hooks_current(live: Live) -> Iterator[Problem]:
    for file in _files(live, "hooks"):
        if file.path.exists() and _differs(file):
            is_lua = file.path.name == wellknown.JOB_SUBMIT
            remedy = f"`{APPLY}`" if is_lua else f"`penstock doctor --fix` or `{APPLY}`"
            fix = None if is_lua else _writer(file)
            yield Problem(f"{file.path} is of another version or site file", remedy, fix=fix)


def _files(live: Live, kind: str) -> Iterator[sitefiles.File]:
    return (file for file in live.files if file.kind == kind)


def _differs(file: sitefiles.File) -> bool:
    return not file.path.exists() or file.path.read_bytes() != file.content


def _writer(file: sitefiles.File) -> Fix:
    def write() -> None:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(file.path, file.content, mode=file.mode)

    return write


@registry.add("hooks-interpreter", "the hooks' interpreter is installed")
def hooks_interpreter(live: Live) -> Iterator[Problem]:
    if not os.access("/usr/bin/python3", os.X_OK):
        yield Problem("/usr/bin/python3 is missing", "install Python 3 on every host that runs a slurmd")


@registry.add("job-submit", "job_submit.lua is Penstock's and active")
def job_submit(live: Live) -> Iterator[Problem]:
    if "lua" not in live.settings.get("JobSubmitPlugins", "").split(","):
        yield Problem(
            "slurmctld runs without JobSubmitPlugins=lua: scripts run on the Slurm node itself",
            f"`{APPLY}`, or restart slurmctld if slurm.conf has it",
        )
    path = Path(live.site.slurm.conf).parent / wellknown.JOB_SUBMIT
    for file in live.files:
        if file.path == path and path.exists() and _differs(file):
            message = f"{path} is not Penstock's: scripts run on the Slurm node itself"
            yield Problem(message, f"`{APPLY}` keeps it and runs it before Penstock's")


@registry.add("prolog", "PrologSlurmctld is active")
def prolog(live: Live) -> Iterator[Problem]:
    yield from _active(live, "PrologSlurmctld", "jobs start without admission")


@registry.add("epilog", "Epilog is active")
def epilog(live: Live) -> Iterator[Problem]:
    danger = "nodes are freed while pods still run"
    if sitefiles.describe(live.site, live.facts).hooks_everywhere:
        yield from _active(live, "Epilog", danger)
        return
    wanted = str(sitefiles.conf_of_slurmds(live.site, live.facts))
    for name, conf in slurmds.confs().items():
        if name in live.bridged_nodes and conf != wanted:
            yield Problem(
                f"the slurmd of {name} reads {conf or 'slurm.conf'}, not {wanted}: {danger}",
                f"start it with -f {wanted}, as the systemd unit penstock-slurmd@{name} does",
            )


@registry.add("steps", "steps of bridged jobs are refused: TaskProlog or the PAM session is active")
def steps(live: Live) -> Iterator[Problem]:
    if not sitefiles.describe(live.site, live.facts).hooks_everywhere:
        raise Skip("configured in the file that slurmds of bridged nodes read: see epilog and slurm-files")
    danger = "steps run on the Slurm node itself"
    if live.site.slurm.pam_file is None:
        yield from _active(live, "TaskProlog", danger)
    elif live.settings.get("UsePam", "").lower() not in ("1", "yes"):
        yield Problem(f"slurmctld runs without UsePAM: {danger}", f"`{APPLY}`")


def _active(live: Live, setting: str, danger: str) -> Iterator[Problem]:
    hooks = sitefiles.describe(live.site, live.facts).hooks
    if hooks is None:
        raise Skip("no partition is bridged")
    programs = (hooks.prolog_slurmctld, hooks.epilog, hooks.task_prolog)
    wanted = dict(zip(includes.HOOK_SETTINGS, programs, strict=True))[setting]
    # Later releases of Slurm show lists as Epilog[0].
    runs = live.settings.get(setting, "") or live.settings.get(f"{setting}[0]", "")
    if runs == wanted:
        return
    if live.conf.get(setting) == wanted:
        remedy = "restart slurmctld" if setting == "PrologSlurmctld" else "`scontrol reconfigure`"
        yield Problem(f"slurm.conf has {setting}, but it is not active: {danger}", remedy)
    else:
        yield Problem(f"{setting} is {runs or 'not set'}, not {wanted}: {danger}", f"`{APPLY}`")


@registry.add("slurm-files", "slurm.conf and its includes are as rendered from the site file")
def slurm_files(live: Live) -> Iterator[Problem]:
    for file in filter(_differs, _files(live, "slurm")):
        message = f"{file.path} differs from what the site file renders"
        yield Problem(message, "`penstock render --diff` shows the difference", True)
    if live.site.slurm.manage == "include":
        text = Path(live.site.slurm.conf).read_text(errors="replace")
        if f"include {facts.include_path(live.site)}" not in text:
            yield Problem(f"{live.site.slurm.conf} does not include Penstock's file", f"`{APPLY}`")


@registry.add("cred-expire", "requeued jobs are retried soon")
def cred_expire(live: Live) -> Iterator[Problem]:
    match = re.search(r"cred_expire=(\d+)", live.settings.get("AuthInfo", ""))
    seconds = int(match[1]) if match else 120
    if seconds > LONGEST_CREDENTIAL:
        message = f"credentials live {seconds} s: a requeued job waits that long"
        yield Problem(message, "set AuthInfo=…,cred_expire=10 in slurm.conf and restart slurmctld", True)


@registry.add("timeouts", "timeouts are in order: KillWait < release < PrologEpilogTimeout")
def timeouts(live: Live) -> Iterator[Problem]:
    kill, release = _number(live, "KillWait"), live.site.timeouts.release
    if kill is not None and kill >= release:
        message = f"KillWait ({kill} s) is not below timeouts.release ({release} s)"
        yield Problem(message, "lower KillWait, or raise timeouts.release and timeouts.epilog")
    if kill is not None and kill != live.site.timeouts.kill_wait:
        message = f"KillWait is {kill} s, the site file says {live.site.timeouts.kill_wait} s"
        yield Problem(message, "make them equal: the site file's value is the grace period of pods", True)
    everywhere = sitefiles.describe(live.site, live.facts).hooks_everywhere
    limit = _number(live, "PrologEpilogTimeout") or _number(live, "EpilogTimeout")
    if everywhere and limit is not None and limit <= release:
        message = f"Slurm kills an Epilog after {limit} s, before timeouts.release ({release} s)"
        yield Problem(message, "raise PrologEpilogTimeout, or lower timeouts.release: nodes get drained")


def _number(live: Live, setting: str) -> int | None:
    match = re.match(r"\d+", live.settings.get(setting, ""))
    return int(match[0]) if match else None


@registry.add("accounting", "Slurm's accounting is enabled and keeps job comments")
def accounting(live: Live) -> Iterator[Problem]:
    kind = live.settings.get("AccountingStorageType", "")
    if not kind.endswith("slurmdbd"):
        message = f"AccountingStorageType is {kind or 'none'}: no sacct, no fairshare, no limits"
        yield Problem(message, "set up slurmdbd", True)
    elif "job_comment" not in live.settings.get("AccountingStoreFlags", ""):
        message = "accounting does not keep job comments, which hold Penstock's reasons"
        yield Problem(message, "set AccountingStoreFlags=job_comment in slurm.conf", True)


@registry.add("memory-default", "a job without --mem does not take a whole node")
def memory_default(live: Live) -> Iterator[Problem]:
    if not _number(live, "DefMemPerCPU") and not _number(live, "DefMemPerNode"):
        message = "DefMemPerCPU is not set: a job without --mem takes all memory of its node"
        yield Problem(message, "set DefMemPerCPU in slurm.conf", True)


@registry.add("select-type", "Slurm schedules single CPUs, memory and GPUs (cons_tres)")
def select_type(live: Live) -> Iterator[Problem]:
    kind = live.settings.get("SelectType", "")
    if not kind.endswith("cons_tres"):
        yield Problem(f"SelectType is {kind}", "set SelectType=select/cons_tres in slurm.conf", True)


@registry.add("drained", "no node is drained or down")
def drained(live: Live) -> Iterator[Problem]:
    for name in live.bridged_nodes:
        node = live.slurm_nodes.get(name)
        if node is None:
            yield Problem("Slurm has no node {nodes}", f"`{APPLY}`", nodes=(name,))
            continue
        reason = _WHO_AND_WHEN.sub("", node.reason)
        if node.is_drained and reason.startswith("penstock"):
            remedy = "penstockd resumes it once its pods are gone; see check `penstockd`"
            yield Problem(f"{{nodes}} is drained by Penstock: {reason}", remedy, True, nodes=(name,))
        elif node.is_drained and reason.startswith("Epilog error"):
            message = "{nodes} is drained: an Epilog failed; penstockd resumes it only if that was Penstock's"
            remedy = "fix what slurmd's log names, then: scontrol update NodeName={nodes} State=RESUME"
            yield Problem(message, remedy, True, nodes=(name,))
        elif node.is_out_of_service:
            remedy = "scontrol update NodeName={nodes} State=RESUME once it is well"
            message = f"{{nodes}} is {node.state}: {reason or 'no reason given'}"
            yield Problem(message, remedy, True, nodes=(name,))


@registry.add("penstockd-config", "penstockd's settings are as rendered from the site file")
def penstockd_config(live: Live) -> Iterator[Problem]:
    for file in filter(_differs, _files(live, "penstockd")):
        message = f"{file.path} differs from what the site file renders"
        yield Problem(message, "`penstock doctor --fix`, then restart penstockd", fix=_writer(file))


@registry.add("shared-mounts", "shared mounts exist on this host")
def shared_mounts(live: Live) -> Iterator[Problem]:
    for mount in policies.resolved(live.site).shared_mounts:
        if not Path(mount).is_dir():
            yield Problem(
                f"{mount} does not exist", "mount it: scripts are submitted from it and write to it"
            )
