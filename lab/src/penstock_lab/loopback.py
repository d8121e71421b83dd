"""Makes Slurm's daemons listen on loopback, whatever the machine's host name is.

They can only listen on all addresses, or on the address of the host name. So the lab's daemons run in a UTS
namespace with host name localhost; each prefix ends in exec, so the pid stays the daemon's. Where the machine
does not allow that, its own host name is used, if it resolves to loopback.

srun and salloc use the same setting, run outside the namespace, and are called back on the address they
connected from. If the host name resolves to another address, only the daemons may have the setting, so they
get their own configuration files.
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
    "Slurm listens on all addresses: no UTS namespaces here, and the host name does not resolve to loopback"
)
_PROGRAMS = ("unshare", "hostname", "setpriv")
_IN_A_NAMESPACE = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', NAME)


def prefix(user: str) -> tuple[str, ...]:
    """Prefix of a daemon's command line: root sets the host name, then `user` runs the daemon."""
    identity = passwd.identity(user)
    if not identity:
        return _IN_A_NAMESPACE
    groups = ",".join(str(group) for group in identity["extra_groups"])
    drop = ("setpriv", f"--reuid={identity['user']}", f"--regid={identity['group']}", f"--groups={groups}")
    return (*_IN_A_NAMESPACE, *drop)


@functools.cache
def has_own_name() -> bool:
    """Whether daemons can be given their own host name on this machine."""
    if os.geteuid() != 0 or _resolve(NAME) != ports.LOOPBACK:
        return False
    if not all(shutil.which(program, path=subprocesses.search_path()) for program in _PROGRAMS):
        return False
    tried = subprocesses.run((*_IN_A_NAMESPACE, "hostname"), check=False)
    return tried.returncode == 0 and tried.stdout.strip() == NAME


def shared_address() -> str | None:
    """The loopback address that both daemons and clients can listen on exclusively, if any."""
    machine = _resolve(socket.gethostname())
    if has_own_name():
        return machine if machine == ports.LOOPBACK else None
    return machine if machine is not None and machine.startswith("127.") else None


def is_on_loopback() -> bool:
    """Whether the daemons listen on loopback only."""
    return has_own_name() or shared_address() is not None


def slurm_conf(place: paths.LabPaths) -> Path:
    return place.daemons_slurm_conf if _apart() else place.slurm_conf


def accounting_conf(place: paths.LabPaths) -> Path:
    """SLURM_CONF of slurmdbd, which reads slurmdbd.conf from the same folder; slurm.conf need not exist."""
    return place.daemons_slurmdbd_conf.with_name("slurm.conf") if _apart() else place.slurm_conf


def write(place: paths.LabPaths) -> None:
    """Write the daemons' own configuration files, if needed: the site's plus one setting."""
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


def _resolve(name: str) -> str | None:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return None
