"""The lab's directories: whether one may be made here, and who owns what in it.

All of it may be done again on a lab that exists: owners and modes are put right, content is kept.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from penstock import errors
from penstock_lab import files, passwd, paths, spec, subprocesses

SLURM = "slurm"
MUNGE = "munge"
NEW_LAB_MEGABYTES = 200
"""MariaDB's files take about 60 MB; logs, spools and results need room to grow."""
REPAIR_MEGABYTES = 20
ANOTHER_PLACE = "Choose another place with --dir."


def require_usable(directory: Path) -> None:
    """Complain when users could not reach a lab there, or when what is there is not ours."""
    closed = paths.closed_parent(directory)
    if closed is not None:
        raise errors.UsageError(
            f"users cannot reach {directory}: {closed} is closed to them", hint=ANOTHER_PLACE
        )
    require_ours(directory)


def require_ours(directory: Path) -> None:
    """Complain when there is something in the directory that is not a lab."""
    if directory.exists() and not directory.is_dir():
        raise errors.UsageError(f"{directory} is not a directory", hint=ANOTHER_PLACE)
    if directory.is_dir() and not (directory / paths.SPEC_NAME).is_file() and _has_content(directory):
        raise errors.UsageError(
            f"{directory} is neither empty nor a lab: nothing was touched", hint=ANOTHER_PLACE
        )


def require_only_ours(directory: Path) -> None:
    """Complain when there is something beside an unreadable lab.json that no lab makes: other programs have
    files of that name, too.
    """
    strange = sorted(entry.name for entry in directory.iterdir() if not paths.is_known(entry.name))
    if strange:
        raise errors.UsageError(
            f"{directory} has {', '.join(strange[:3])}, which no lab makes: nothing was touched",
            hint="If it is a lab after all, move that elsewhere first.",
        )


def _has_content(directory: Path) -> bool:
    """Anything but a lab.json that was being written when its writer was killed."""
    return any(not entry.name.startswith(f".{paths.SPEC_NAME}.") for entry in directory.iterdir())


def require_space(directory: Path, *, megabytes: int) -> None:
    """Complain when the disk under the lab's directory has not that much room."""
    free = free_megabytes(directory)
    if free < megabytes:
        raise errors.LabError(
            f"{directory}: {free} MB free on its disk, a lab needs {megabytes} MB (most of it for MariaDB)",
            hint=subprocesses.FULL_DISK_HINT,
        )


def free_megabytes(directory: Path) -> int:
    """Room on the disk under this directory, which need not exist yet."""
    there = next(parent for parent in (directory, *directory.parents) if parent.exists())
    return shutil.disk_usage(there).free // 2**20


def make_directories(place: paths.LabPaths, lab: spec.LabSpec) -> None:
    """All directories; the user whose home is one of them is there."""
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
    _make_nas(place, lab)


def _make_nas(place: paths.LabPaths, lab: spec.LabSpec) -> None:
    files.directory(place.nas, mode=0o1777)
    files.directory(place.nas_homes)
    files.directory(place.nas_drop)
    files.directory(place.nas_submit, mode=0o1777)
    files.directory(place.nas_results, owner=files.ROOT)
    make_home(place, lab.user)


def make_home(place: paths.LabPaths, user: str) -> None:
    """A folder on the NAS for one user."""
    files.directory(place.nas_home(user), mode=0o700, owner=passwd.owner_of(user))
