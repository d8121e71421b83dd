"""PAM for the lab's slurmds on an unchanged host: they see the lab's own /etc/pam.d.

It is a copy of the host's with the service `slurm` added, mounted over the real one in a mount namespace of
slurmd and its children. Where the machine does not allow that, TaskProlog is used instead.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from penstock import wellknown
from penstock.render import pam
from penstock_lab import files, paths, subprocesses

HOST_PAM = Path("/etc/pam.d")
_IN_A_NAMESPACE = (
    "unshare",
    "--mount",
    "--propagation",
    "slave",
)  # slave: later mounts of the host are visible
_MOUNT_THEN_RUN = 'mount --bind "$0" /etc/pam.d && exec "$@"'
_MODULES = ("pam_exec.so", "pam_permit.so")


def guard(place: paths.LabPaths) -> None:
    """Write the lab's own /etc/pam.d, if slurmds can use it.

    Files are replaced one by one: running slurmds have this directory mounted.
    """
    if not are_guarded():
        return
    files.directory(place.pam)
    for found in HOST_PAM.iterdir():
        if found.is_file():
            files.write(place.pam / found.name, found.read_bytes())
    files.write(place.pam / pam.SERVICE, pam.render_service(str(place.libexec / wellknown.SESSION)))


def prefix(place: paths.LabPaths) -> tuple[str, ...]:
    """Prefix of slurmd's command line."""
    if not are_guarded():
        return ()
    return (*_IN_A_NAMESPACE, "sh", "-c", _MOUNT_THEN_RUN, str(place.pam))


@functools.cache
def are_guarded() -> bool:
    """Whether the lab's slurmds can have their own PAM configuration on this machine."""
    if os.geteuid() != 0 or not HOST_PAM.is_dir() or not all(_has_module(name) for name in _MODULES):
        return False
    tried = subprocesses.run((*_IN_A_NAMESPACE, "mount", "--bind", str(HOST_PAM), str(HOST_PAM)), check=False)
    return tried.returncode == 0


def _has_module(name: str) -> bool:
    return any(Path("/lib").glob(f"*/security/{name}"))
