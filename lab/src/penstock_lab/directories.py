"""The lab's directories: whether a lab may be made here, and the owners and modes of its folders.

Idempotent: on an existing lab, owners and modes are corrected and content is kept.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from penstock import errors
from penstock_lab import files, passwd, paths, spec, subprocesses

SLURM = "slurm"
MUNGE = "munge"
NEW_LAB_MEGABYTES = 200
"""MariaDB's files take about 60 MB; the rest is for logs, spools and results."""
REPAIR_MEGABYTES = 20
ANOTHER_PLACE = "Choose another place with --dir."


def require_usable(directory: Path) -> None:
    """Refuse a directory that users cannot reach, or that holds something other than a lab."""
    closed = paths.closed_parent(directory)
    if closed is not None:
        raise errors.UsageError(
            f"users cannot reach {directory}: {closed} is closed to them", hint=ANOTHER_PLACE
        )
    require_ours(directory)


def require_ours(directory: Path) -> None:
    """Refuse a directory that holds something other than a lab."""
    if directory.exists() and not directory.is_dir():
        raise errors.UsageError(f"{directory} is not a directory", hint=ANOTHER_PLACE)
    if directory.is_dir() and not (directory / paths.SPEC_NAME).is_file() and _has_content(directory):
        raise errors.UsageError(
            f"{directory} is neither empty nor a lab: nothing was touched", hint=ANOTHER_PLACE
        )


def require_only_ours(directory: Path) -> None:
    """Refuse a directory with an unreadable lab.json and files that no lab makes: other programs also use
    that file name.
    """
    strange = sorted(entry.name for entry in directory.iterdir() if not paths.is_known(entry.name))
    if strange:
        raise errors.UsageError(
            f"{directory} has {', '.join(strange[:3])}, which no lab makes: nothing was touched",
            hint="If this is a lab, move them elsewhere first.",
        )


def _has_content(directory: Path) -> bool:
    """Ignores an unfinished lab.json, left by a killed process."""
    return any(not entry.name.startswith(f".{paths.SPEC_NAME}.") for entry in directory.iterdir())


def require_space(directory: Path, *, megabytes: int) -> None:
    """Refuse when the lab's disk has less free space."""
    free = free_megabytes(directory)
    if free < megabytes:
        raise errors.LabError(
            f"{directory}: {free} MB free on its disk, a lab needs {megabytes} MB (most of it for MariaDB)",
            hint=subprocesses.FULL_DISK_HINT,
        )


def free_megabytes(directory: Path) -> int:
    """Free space on the disk of this directory, which need not exist yet."""
    there = next(parent for parent in (directory, *directory.parents) if parent.exists())
    return shutil.disk_usage(there).free // 2**20


def make_directories(place: paths.LabPaths, lab: spec.LabSpec) -> None:
    """Make all directories; the lab's user must exist, since his home is one of them."""
    slurm, munge = passwd.owner_of(SLURM), passwd.owner_of(MUNGE)
    for path in (place.etc, place.bin, place.libexec, place.run, place.log, place.spool, place.gpu_devices):
        files.directory(path)
    files.directory(place.inbox.parent)
    for path in (place.slurm_run, place.mariadb_run, place.penstockd_run, place.slurm_log):
        files.directory(path, owner=slurm)
    for path in (place.database, place.database_scratch, place.controller_state):
        files.directory(path, mode=0o700, owner=slurm)
    files.directory(place.attempts, mode=0o711)
    for path in (place.attempts / "running", place.attempts / "ended"):
        files.directory(path, mode=0o700, owner=slurm)
    files.directory(place.munge_run, owner=munge)
    files.directory(place.munge_private, mode=0o700, owner=munge)
    files.directory(place.devcluster_data, mode=0o700)
    for node in lab.node_specs:
        files.directory(place.spool / node.name)
    files.directory(place.nas, mode=0o1777)
    files.directory(place.nas_homes)
    files.directory(place.nas_drop)
    files.directory(place.nas_submit, mode=0o1777)
    files.directory(place.nas_results, owner=files.ROOT)
    make_home(place, lab.user)


def make_home(place: paths.LabPaths, user: str) -> None:
    files.directory(place.nas_home(user), mode=0o700, owner=passwd.owner_of(user))
