"""Queued jobs that a plan would harm, and old launchers that they still need.

Slurm ends jobs as NODE_FAIL if their partition or node is removed from slurm.conf. A job's script is stored
as submitted: its first line has the launcher's path if it passed Penstock's job_submit.lua; others cannot
start in a bridged partition.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from penstock import errors, wellknown, wording
from penstock.install import inventory, sitefiles
from penstock.model.jobs import Job
from penstock.render import hooks
from penstock.sbatch import siteviews

SHOWN = 10
RESUBMIT = "wait for them, or cancel them and submit them again afterwards"
Ask = Callable[[], tuple[Job, ...]]
"""Lists the queue; raises SlurmError."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Harm:
    reason: str
    jobs: tuple[str, ...]
    remedy: str

    def __str__(self) -> str:
        if not self.jobs:
            return self.reason
        return f"{wording.many(len(self.jobs), 'job')} {self.reason}: {wording.some(self.jobs, SHOWN)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outlook:
    """State of Slurm after the plan."""

    partitions: frozenset[str]
    nodes: frozenset[str]
    bridged: frozenset[str]
    bridged_before: frozenset[str]
    reread: bool
    """Whether slurmctld rereads slurm.conf and drops what is no longer in it."""


def nobody() -> tuple[Job, ...]:
    return ()


def harms(ask: Ask, outlook: Outlook) -> tuple[Harm, ...]:
    """All harms; if Slurm does not answer, one that says so."""
    if not outlook.reread and outlook.bridged == outlook.bridged_before:
        return ()
    try:
        jobs = ask()
    except errors.SlurmError as error:
        reason = f"cannot find out which queued jobs this would harm: {error.message}"
        return (Harm(reason=reason, jobs=(), remedy="try again when slurmctld answers"),)
    found = (*_lost(jobs, outlook), *_stranded(jobs, outlook))
    return tuple(harm for harm in found if harm.jobs)


def _lost(jobs: Iterable[Job], outlook: Outlook) -> Iterator[Harm]:
    if not outlook.reread:
        return
    for name in sorted({name for job in jobs for name in job.partitions} - outlook.partitions):
        yield Harm(
            reason=f"would end as NODE_FAIL, because partition {name} is removed",
            jobs=_names(job for job in jobs if name in job.partitions),
            remedy=f"keep {name} in the site file until they have ended",
        )
    gone = sorted({name for job in jobs for name in _nodes(job)} - outlook.nodes)
    yield Harm(
        reason=f"would end as NODE_FAIL, because their nodes are removed ({wording.some(gone, SHOWN)})",
        jobs=_names(job for job in jobs if _nodes(job).intersection(gone)),
        remedy="keep the nodes in the site file until they have ended",
    )


def _stranded(jobs: Iterable[Job], outlook: Outlook) -> Iterator[Harm]:
    for name in sorted(outlook.bridged - outlook.bridged_before):
        yield Harm(
            reason=f"in {name} could not start or run more steps: submitted before it was bridged",
            jobs=_names(job for job in jobs if name in job.partitions and not job.prepared),
            remedy=RESUBMIT,
        )
    for name in sorted((outlook.bridged_before - outlook.bridged) & outlook.partitions):
        yield Harm(
            reason=f"in {name} could not start: submitted as pods, but it is no longer bridged",
            jobs=_names(job for job in jobs if name in job.partitions and job.prepared),
            remedy=RESUBMIT,
        )


def _nodes(job: Job) -> frozenset[str]:
    """Allocated nodes, and those requested by name."""
    return frozenset((*job.nodes, *job.required))


def _names(jobs: Iterable[Job]) -> tuple[str, ...]:
    return tuple(job.shown_id for job in jobs)


def bridged_now(installed: inventory.Installed, store: inventory.Store, view: str) -> frozenset[str] | None:
    """Partitions that are bridged now, by the installed site.json; None if that cannot be read."""
    names = [path for path in installed.files if path == view or Path(path).name == Path(view).name]
    if not names:
        return frozenset()
    try:
        decoded = siteviews.decode(store.copy(installed.files[names[0]].ours.digest))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return frozenset(decoded.pods.partitions)


# -- old launchers -------------------------------------------------------------------------------------------
def old_folders(installed: Iterable[str], goals: Mapping[str, object]) -> tuple[Path, ...]:
    """Folders with an installed launcher that are no longer `penstockd.libexec`."""
    launchers = (Path(path) for path in installed if path not in goals)
    return tuple(path.parent for path in launchers if path.name == wellknown.LAUNCHER)


def users_of(folder: Path, ask: Ask, *, state_dir: Path) -> tuple[str, ...] | None:
    """Jobs whose stored script starts the launcher in this folder; None if unknown."""
    try:
        return _names(job for job in ask() if job.prepared and _starts(folder, job, state_dir))
    except errors.SlurmError:
        return None


def _starts(folder: Path, job: Job, state_dir: Path) -> bool:
    """slurmctld stores scripts in its state folder; the layout is the same in 22.05, 24.11 and 26.05."""
    script = state_dir / f"hash.{job.script_id % 10}" / f"job.{job.script_id}" / "script"
    wanted = f"#!{folder}/{wellknown.LAUNCHER} ".encode()
    try:
        with script.open("rb") as stream:
            return stream.read(len(wanted)) == wanted
    except OSError:
        return True  # unreadable: assume that it does


def launcher_files(
    files: Iterable[sitefiles.File], *, libexec: Path, folder: Path
) -> Iterator[sitefiles.File]:
    """The launcher and its modules, in another folder."""
    for file in files:
        if not file.path.is_relative_to(libexec):
            continue
        below = file.path.relative_to(libexec)
        if below.parts[0] in (wellknown.LAUNCHER, hooks.PACKAGE):
            yield dataclasses.replace(file, path=folder / below)
