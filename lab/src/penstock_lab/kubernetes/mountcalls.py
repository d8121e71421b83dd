"""Mount system calls, with errors that name the path."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_MS_BIND = 4096
_MS_PRIVATE = 1 << 18
_MS_SHARED = 1 << 20
_MOUNTINFO = Path("/proc/self/mountinfo")


def leave_mount_namespace() -> None:
    """Give this process its own mount namespace; shared mounts stay shared."""
    if _libc().unshare(_CLONE_NEWNS) != 0:
        raise _error("unshare")


def bind(source: Path, target: Path) -> None:
    _mount(source, target, _MS_BIND)


def keep_private(path: Path) -> None:
    """Do not propagate mounts below this one to other namespaces."""
    _mount(None, path, _MS_PRIVATE)


def share(path: Path) -> None:
    """Make a directory a shared mount; idempotent."""
    if str(path) not in mount_points():
        bind(path, path)
    _mount(None, path, _MS_SHARED)


def mount_holding(path: Path) -> Path:
    points = mount_points()
    resolved = path.resolve()
    return next(place for place in (resolved, *resolved.parents) if str(place) in points)


def mount_points() -> set[str]:
    return set(all_mounts())


def all_mounts() -> list[str]:
    """All mount points, with repetition where mounts are stacked. Paths are arbitrary bytes, not necessarily
    UTF-8.
    """
    lines = os.fsdecode(_MOUNTINFO.read_bytes()).split("\n")
    return [parse_mount_point(line) for line in lines if line]


def parse_mount_point(line: str) -> str:
    """The fifth field of a line of mountinfo, with octal escapes decoded."""
    name = os.fsencode(line.split(" ")[4]).decode("unicode_escape")
    return os.fsdecode(name.encode("latin-1"))


def _mount(source: Path | None, target: Path, flags: int) -> None:
    what = os.fsencode(source) if source is not None else None
    if _libc().mount(what, os.fsencode(target), None, ctypes.c_ulong(flags), None) != 0:
        raise _error(str(target))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _error(where: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), where)
