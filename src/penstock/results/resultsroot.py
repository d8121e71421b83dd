"""The results folder: its ownership, and how a job's folder gets its name in it.

Only root may write it, so no user can create a folder or a link under the id of a future job. Root creates
and renames entries directly in it and never enters them: what is inside a job's folder is done as its owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from pathlib import Path

from penstock import errors, wellknown
from penstock.model import attempts
from penstock.nas import asuser, atomic
from penstock.results import filecopy, resultpaths

MARK = ".penstock-results"  # holds a random text, of which the state directory has a copy


def prepare(folder: Path, state: Path) -> None:
    """Check that it is the same folder as before, and safe. Raises NasUnavailable.

    The mark tells it from a mount point whose file system is not mounted.
    """
    try:
        found = folder.lstat()
    except OSError as error:
        raise errors.NasUnavailable(f"the results folder {folder}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise errors.NasUnavailable(
            f"the results folder {folder} must be a folder that only the collector's user may write",
            hint=f"chown root {folder}; chmod 755 {folder}. Otherwise users could change others' results.",
        )
    try:
        _check_mark(folder, state / attempts.COLLECTOR_MARK)
        _make_outputs(folder / wellknown.OUTPUTS_FOLDER)
    except OSError as error:
        raise errors.NasUnavailable(f"the results folder {folder}: {error.strerror}") from error


def _check_mark(folder: Path, remembered: Path) -> None:
    if not remembered.exists():
        _remember(folder / MARK, remembered)
    if not (folder / MARK).exists() or (folder / MARK).read_text() != remembered.read_text():
        raise errors.NasUnavailable(
            f"the results folder {folder} is not the same as before: is its file system mounted?",
            hint=f"If the change is intended, remove {remembered}.",
        )


def _remember(mark: Path, remembered: Path) -> None:
    """Create the mark and its copy once; locked, because several processes may come first together."""
    with remembered.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if remembered.exists():
            return
        if not mark.exists():
            for unfinished in mark.parent.glob(f".{MARK}.*"):
                unfinished.unlink()
            atomic.write(mark, f"{secrets.token_hex(16)}\n".encode())
        atomic.write(remembered, mark.read_bytes())


def _make_outputs(folder: Path) -> None:
    """The folder of pods' output folders: everybody may create one, nobody may list or remove others'."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
    if stat.S_IMODE(folder.lstat().st_mode) != 0o1733:
        folder.chmod(0o1733)


def own_folder(path: Path, user: asuser.User) -> None:
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if path.lstat().st_uid != user.uid:
        os.chown(path, user.uid, user.gid, follow_symlinks=False)


def belongs_to(path: Path, user: asuser.User) -> bool:
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == user.uid


def set_aside(path: Path) -> Path:
    """Rename the folder of another job that had the same id."""
    number = 1
    while filecopy.exists(aside := path.with_name(f"{path.name}.{number}")):
        number += 1
    path.rename(aside)
    return aside


def put_in_place(partial: Path, final: Path, old: Path) -> None:
    """Rename the complete folder to its final name, after renaming an existing one to `old`.

    A crash between the two renames leaves `partial` complete.
    """
    if filecopy.exists(final):
        final.rename(old)
    partial.rename(final)
    atomic.sync_directory(final.parent)


def remove_empty(folder: Path) -> bool:
    """Remove job folders that their owners have emptied; rmdir fails for all others."""
    for entry in os.scandir(folder):
        if resultpaths.JOB.fullmatch(entry.name):
            with contextlib.suppress(OSError):
                Path(entry.path).rmdir()
    return True
