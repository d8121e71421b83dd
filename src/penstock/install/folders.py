"""Folders that Penstock's services need, with their modes and owners: said once for all who need to know."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from penstock import wellknown
from penstock.install import facts
from penstock.site.schema import Site

ROOT = 0


def on_nas(site: Site) -> Iterator[tuple[Path, int, int]]:
    """Folder, mode and owner's uid: everybody drops files into one, results are made in another."""
    if site.nas is not None:
        yield Path(site.nas.path) / site.nas.drop / wellknown.DROP_SUBMIT, 0o1777, ROOT
        yield Path(site.nas.path) / site.nas.results, 0o755, ROOT


def local(site: Site) -> Iterator[tuple[Path, int, int]]:
    """What penstockd leaves for the collector."""
    if site.nas is None:
        return
    state, slurm = Path(site.results.state_dir), facts.uid_of(site.slurm.user)
    yield state, 0o711, ROOT
    for name in ("running", "ended"):
        yield state / name, 0o700, slurm


def make(folder: Path, mode: int, owner: int) -> None:
    """The folder with this mode and owner, and what is above it; a link in its place is an error."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchown(descriptor, owner, -1)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def make_missing(site: Site) -> None:
    """Those that are not there; a NAS that is not mounted is left alone."""
    nas = Path(site.nas.path) if site.nas is not None else None
    wanted = [*local(site), *(on_nas(site) if nas is not None and nas.is_dir() else ())]
    for folder, mode, owner in wanted:
        if not folder.exists():
            make(folder, mode, owner)
