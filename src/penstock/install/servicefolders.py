"""Folders that Penstock's services need, with their modes and owners."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from penstock import wellknown
from penstock.install import facts
from penstock.nas import atomic
from penstock.site.schema import Site

ROOT = 0


def on_nas(site: Site) -> Iterator[tuple[Path, int, int]]:
    """Folder, mode and owner's uid."""
    if site.nas is not None:
        yield Path(site.nas.path) / site.nas.drop / wellknown.DROP_SUBMIT, 0o1777, ROOT
        yield Path(site.nas.path) / site.nas.results, 0o755, ROOT


def local(site: Site) -> Iterator[tuple[Path, int, int]]:
    """The folders of penstockd's records for the collector."""
    if site.nas is None:
        return
    state, slurm = Path(site.results.state_dir), facts.uid_of(site.slurm.user)
    yield state, 0o711, ROOT
    for name in ("running", "ended"):
        yield state / name, 0o700, slurm


def make(folder: Path, mode: int, owner: int) -> None:
    """Create the folder and its parents. Raises OSError if it is a symlink, or below one not made by root."""
    with contextlib.ExitStack() as stack:
        below = _entered(stack, folder.anchor, None)
        for part in folder.parent.parts[1:]:
            below = _entered(stack, part, below)
        descriptor = _entered(stack, folder.name, below, through_links=False)
        os.fchown(descriptor, owner, -1)
        os.fchmod(descriptor, mode)


def write(path: Path, content: bytes) -> None:
    """Write a world-readable file into an existing folder; symlinks are treated as in `make`."""
    with contextlib.ExitStack() as stack:
        below = _entered(stack, path.anchor, None)
        for part in path.parent.parts[1:]:
            below = _entered(stack, part, below, missing_ok=False)
        atomic.write(Path(f"/proc/self/fd/{below}") / path.name, content)


def _entered(
    stack: contextlib.ExitStack,
    name: str,
    below: int | None,
    *,
    through_links: bool = True,
    missing_ok: bool = True,
) -> int:
    """Open a folder below an open one, and create it if it is missing."""
    with contextlib.suppress(FileExistsError):
        if below is not None and missing_ok:
            os.mkdir(name, 0o755, dir_fd=below)
    strict = 0 if through_links and (below is None or _is_roots(below)) else os.O_NOFOLLOW
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | strict, dir_fd=below)
    stack.callback(os.close, descriptor)
    return descriptor


def _is_roots(directory: int) -> bool:
    """Whether only root (or we) can create entries in it."""
    found = os.fstat(directory)
    return found.st_uid in (ROOT, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def missing(site: Site) -> list[tuple[Path, int, int]]:
    """Missing folders; those on a NAS that is not mounted do not count."""
    nas = Path(site.nas.path) if site.nas is not None else None
    wanted = [*local(site), *(on_nas(site) if nas is not None and nas.is_dir() else ())]
    return [each for each in wanted if not each[0].exists()]


def make_missing(site: Site) -> None:
    for folder, mode, owner in missing(site):
        make(folder, mode, owner)
