"""A cache of what takes long to make and is the same for every lab, keyed by content.

An entry is made in a temporary directory that is renamed when complete, so entries are always complete. A
lock keeps two labs from making the same entry at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from penstock import wellknown
from penstock_lab import subprocesses

SYSTEM_CACHE = Path("/var/cache/penstock-lab")


def root(environment: Mapping[str, str]) -> Path:
    """The cache's directory: as configured, else per machine for root and per user for others."""
    if environment.get(wellknown.ENV_CACHE):
        return Path(environment[wellknown.ENV_CACHE]).absolute()
    if os.geteuid() == 0:
        return SYSTEM_CACHE
    home = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "penstock"


def ensure(finished: Path, make: Callable[[Path], None]) -> Path:
    """Return the directory `finished`; if it does not exist, `make` fills it under a temporary name."""
    if finished.is_dir():
        return finished
    with subprocesses.os_errors(doing=f"making {finished}"), _readable_by_all():
        finished.parent.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(finished):
            if not finished.is_dir():
                _remove_unfinished(finished)
                _make_whole(finished, make)
    return finished


@contextlib.contextmanager
def _readable_by_all() -> Iterator[None]:
    """Entries are shared by all users, regardless of the umask of whoever makes them."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def _remove_unfinished(finished: Path) -> None:
    """Remove what a killed process left; the lock is held, so it is not in use."""
    for left in finished.parent.glob(f".{finished.name}.*"):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)


def _make_whole(finished: Path, make: Callable[[Path], None]) -> None:
    unfinished = Path(tempfile.mkdtemp(dir=finished.parent, prefix=f".{finished.name}."))
    try:
        make(unfinished)
        unfinished.chmod(0o755)
        unfinished.rename(finished)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


@contextlib.contextmanager
def _one_at_a_time(finished: Path) -> Iterator[None]:
    with (finished.parent / f".{finished.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
