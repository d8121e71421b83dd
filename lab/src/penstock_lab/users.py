"""The lab's user.

This is the user who called sudo. Otherwise an unprivileged system user is made, identified by a home
directory in the lab, and removed with it.
"""

from __future__ import annotations

import pwd
import time
from collections.abc import Mapping
from pathlib import Path

from penstock_lab import passwd, paths, subprocesses

USER_PREFIX = "penstock-"
_LOCK_ATTEMPTS = 20
_USERADD_CANNOT_LOCK = 1


def person_behind_sudo(environment: Mapping[str, str]) -> str:
    """The user who called sudo, unless it is root."""
    name = environment.get("SUDO_USER", "")
    return "" if name in ("", "root") else passwd.entry_of(name).pw_name


def free_name(lab_name: str) -> str:
    taken = {entry.pw_name for entry in pwd.getpwall()}
    suffixes = ("", *(f"-{number}" for number in range(2, 100)))
    return next(name for suffix in suffixes if (name := f"{USER_PREFIX}{lab_name}{suffix}") not in taken)


def ensure_created(place: paths.LabPaths, name: str) -> None:
    """Make the lab's own user unless it exists.

    It has a shell but no password: slurmd uses `su` to get the user's environment when `--export` is more
    than ALL, and Slurm 26.05 holds the job if that fails.
    """
    home = place.nas_home(name)
    if not _is_ours(name, home):
        _retrying(
            "useradd", "--system", "--user-group", "--no-create-home", "--shell", "/bin/sh",
            "--home-dir", str(home), name,
        )  # fmt: skip


def remove_created(place: paths.LabPaths, name: str) -> None:
    """Remove the user that this lab made, but not another user of the same name."""
    if _is_ours(name, place.nas_home(name)):
        _retrying("userdel", name)


def created_uid(place: paths.LabPaths, name: str) -> int | None:
    """The uid of the user that this lab made, if it exists."""
    return pwd.getpwnam(name).pw_uid if _is_ours(name, place.nas_home(name)) else None


def _is_ours(name: str, home: Path) -> bool:
    try:
        return name.startswith(USER_PREFIX) and pwd.getpwnam(name).pw_dir == str(home)
    except KeyError:
        return False


def _retrying(*argv: str) -> None:
    """Run a program that needs the lock on /etc/passwd, which another lab may hold."""
    for attempt in range(_LOCK_ATTEMPTS):
        result = subprocesses.run(argv, check=False)
        if result.returncode == 0:
            return
        if result.returncode != _USERADD_CANNOT_LOCK or attempt == _LOCK_ATTEMPTS - 1:
            raise subprocesses.failure(argv, result)
        time.sleep(0.1)
