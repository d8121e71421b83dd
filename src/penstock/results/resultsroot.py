"""The results folder itself: whose it is, and how a job's folder gets its name in it.

It belongs to root and nobody else may write it, so no user can be there first, with a folder or a link under
a number that a job will have. Root makes and renames entries directly in it, and never goes into one of them:
what is inside is its owner's, and done as its owner.
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

MARK = ".penstock-results"  # in the folder, with a random text that the state directory has too


def prepare(folder: Path, state: Path) -> None:
    """See that it is the folder it always was, and fit for use; PenstockError in words when not.

    A mount point whose file system is not mounted is an empty folder: the mark tells.
    """
    try:
        found = folder.lstat()
    except OSError as error:
        raise errors.NasUnavailable(f"the results folder {folder}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise errors.NasUnavailable(
            f"the results folder {folder} is not a folder that only the collector may write",
            hint=f"chown root {folder}; chmod 755 {folder}: else users could write each other's results.",
        )
    try:
        _recognise(folder, state / attempts.COLLECTOR_MARK)
        _make_outputs(folder / wellknown.OUTPUTS_FOLDER)
    except OSError as error:
        raise errors.NasUnavailable(f"the results folder {folder}: {error.strerror}") from error


def _recognise(folder: Path, remembered: Path) -> None:
    if not remembered.exists():
        _remember(folder / MARK, remembered)
    if not (folder / MARK).exists() or (folder / MARK).read_text() != remembered.read_text():
        raise errors.NasUnavailable(
            f"the results folder {folder} is not the one it was: is its file system mounted?",
            hint=f"If it is meant to be another one now, remove {remembered}.",
        )


def _remember(mark: Path, remembered: Path) -> None:
    """Once and for all; one of us at a time, for several may come first together."""
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
    """Where pods make their output folders: everybody may make one, nobody may list or take another's."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
    if stat.S_IMODE(folder.lstat().st_mode) != 0o1733:
        folder.chmod(0o1733)


def own_folder(path: Path, user: asuser.User) -> None:
    """An empty folder of the user's, or the one that is there."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if path.lstat().st_uid != user.uid:
        os.chown(path, user.uid, user.gid, follow_symlinks=False)


def belongs_to(path: Path, user: asuser.User) -> bool:
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == user.uid


def set_aside(path: Path) -> Path:
    """Give what is there another name, for it is of another job that had the same number."""
    number = 1
    while filecopy.is_there(aside := path.with_name(f"{path.name}.{number}")):
        number += 1
    path.rename(aside)
    return aside


def put_in_place(partial: Path, final: Path, old: Path) -> None:
    """The finished folder under its name; what was there goes to `old` first.

    Between the two renames there is a moment without either; whoever is stopped in it finds `partial` whole.
    """
    if filecopy.is_there(final):
        final.rename(old)
    partial.rename(final)
    atomic.sync_directory(final.parent)


def remove_empty(folder: Path) -> bool:
    """Remove what its owner has emptied; nothing else lets itself be removed so."""
    for entry in os.scandir(folder):
        if resultpaths.JOB.fullmatch(entry.name):
            with contextlib.suppress(OSError):
                Path(entry.path).rmdir()
    return True
