"""Where Slurm's daemons listen: on loopback, whatever the machine is called.

They can listen on all addresses or on that of the machine's name, and on no other. So the lab's daemons live
in a UTS namespace in which the machine is called localhost; every prefix ends in exec, so the pid stays the
daemon's. Where a machine does not allow that, its own name has to do, if it stands for loopback.

srun and salloc go by the same setting, live outside, and are called back on the address they came from. If
the machine's name stands for another one, only the daemons may have it: they get files of their own.
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
from pathlib import Path

from penstock_lab import directories, files, passwd, paths, ports, subprocesses

NAME = "localhost"
EXPOSED = (
    "Slurm listens on all addresses: this machine allows no UTS namespaces, and its name is not loopback"
)
_PROGRAMS = ("unshare", "hostname", "setpriv")
_IN_A_NAMESPACE = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', NAME)


def prefix(user: str) -> tuple[str, ...]:
    """What comes before a daemon's command line: root sets the name, then `user` runs the daemon."""
    identity = passwd.identity(user)
    if not identity:
        return _IN_A_NAMESPACE
    groups = ",".join(str(group) for group in identity["extra_groups"])
    drop = ("setpriv", f"--reuid={identity['user']}", f"--regid={identity['group']}", f"--groups={groups}")
    return (*_IN_A_NAMESPACE, *drop)


@functools.cache
def has_own_name() -> bool:
    """Whether this machine lets daemons see another name than its own."""
    if os.geteuid() != 0 or _stands_for(NAME) != ports.LOOPBACK:
        return False
    if not all(shutil.which(program, path=subprocesses.search_path()) for program in _PROGRAMS):
        return False
    tried = subprocesses.run((*_IN_A_NAMESPACE, "hostname"), check=False)
    return tried.returncode == 0 and tried.stdout.strip() == NAME


def shared_address() -> str | None:
    """The loopback address that both daemons and people's programs can listen on alone, if there is one."""
    machine = _stands_for(socket.gethostname())
    if has_own_name():
        return machine if machine == ports.LOOPBACK else None
    return machine if machine is not None and machine.startswith("127.") else None


def is_on_loopback() -> bool:
    """Whether the daemons can be kept from listening elsewhere."""
    return has_own_name() or shared_address() is not None


def slurm_conf(place: paths.LabPaths) -> Path:
    """What slurmctld and the slurmds read."""
    return place.daemons_slurm_conf if _apart() else place.slurm_conf


def accounting_conf(place: paths.LabPaths) -> Path:
    """What slurmdbd is told of slurm.conf: its own file is beside that."""
    return place.daemons_slurmdbd_conf.with_name("slurm.conf") if _apart() else place.slurm_conf


def write(place: paths.LabPaths) -> None:
    """Files of the daemons' own, where they need some; everything else in them is the site's."""
    if not _apart():
        return
    setting = "CommunicationParameters=NoInAddrAny"
    files.write(place.daemons_slurm_conf, f"include {place.slurm_conf}\n{setting},NoCtldInAddrAny\n")
    own = place.daemons_slurmdbd_conf
    files.directory(own.parent)
    text = f"{place.slurmdbd_conf.read_text()}{setting}\n"
    files.write(own, text, mode=0o600, owner=passwd.owner_of(directories.SLURM))


def _apart() -> bool:
    return has_own_name() and shared_address() is None


def _stands_for(name: str) -> str | None:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return None
