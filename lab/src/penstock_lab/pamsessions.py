"""slurmds that ask PAM before each step, on an unchanged host: they see an /etc/pam.d of the lab's own.

It is a copy of the host's with the service `slurm` added, mounted over the real one in a mount namespace that
only the slurmd and its children live in. Where a machine does not allow that, TaskProlog has to do.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from penstock import wellknown
from penstock.render import pam
from penstock_lab import files, paths, subprocesses

HOST_PAM = Path("/etc/pam.d")
_IN_A_NAMESPACE = ("unshare", "--mount", "--propagation", "slave")  # what the host mounts later is seen
_MOUNT_THEN_RUN = 'mount --bind "$0" /etc/pam.d && exec "$@"'
_MODULES = ("pam_exec.so", "pam_permit.so")


def guard(place: paths.LabPaths) -> None:
    """Write the lab's own /etc/pam.d, if slurmds can be made to see it.

    In place, file by file: running slurmds have this very directory mounted.
    """
    if not are_guarded():
        return
    files.directory(place.pam)
    for found in HOST_PAM.iterdir():
        if found.is_file():
            files.write(place.pam / found.name, found.read_bytes())
    files.write(place.pam / pam.SERVICE, pam.render_service(str(place.libexec / wellknown.SESSION)))


def prefix(place: paths.LabPaths) -> tuple[str, ...]:
    """What comes before `slurmd` in its command line."""
    if not are_guarded():
        return ()
    return (*_IN_A_NAMESPACE, "sh", "-c", _MOUNT_THEN_RUN, str(place.pam))


@functools.cache
def are_guarded() -> bool:
    """Whether this machine lets the lab's slurmds have a PAM configuration of their own."""
    if os.geteuid() != 0 or not HOST_PAM.is_dir() or not all(_has_module(name) for name in _MODULES):
        return False
    tried = subprocesses.run((*_IN_A_NAMESPACE, "mount", "--bind", str(HOST_PAM), str(HOST_PAM)), check=False)
    return tried.returncode == 0


def _has_module(name: str) -> bool:
    return any(Path("/lib").glob(f"*/security/{name}"))
