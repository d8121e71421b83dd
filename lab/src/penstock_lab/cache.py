"""What takes long to make and is the same for every lab, kept outside checkout and lab and found by content.

It is made in a directory of another name that is renamed when all is there, so what is found is always whole;
a lock keeps two labs from making the same thing side by side.
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
    """Where finished things are kept: as told, for all labs of this machine, or for one who is not root."""
    if environment.get(wellknown.ENV_CACHE):
        return Path(environment[wellknown.ENV_CACHE]).absolute()
    if os.geteuid() == 0:
        return SYSTEM_CACHE
    home = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "penstock"


def ensure(finished: Path, make: Callable[[Path], None]) -> Path:
    """The directory `finished`, which `make` fills under another name unless it is there."""
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
    """What is kept is used by everybody, whatever the umask of the one who was first."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def _remove_unfinished(finished: Path) -> None:
    """What was being made when its maker was killed: nobody else is at it while we have the lock."""
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
