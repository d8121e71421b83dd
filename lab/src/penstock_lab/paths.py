"""All paths of a lab; no other module joins path names.

Users can reach what they need (configuration, hooks, sockets, NAS); everything else is mode 0700 or 0600. The
directory's own path is short and plain: a unix socket's path has at most 107 bytes, a `#!` line 255, and
Slurm's configuration files allow neither blanks nor `%` in paths.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from penstock import errors, wellknown

DEFAULT_PARENT = Path("/var/lib/penstock-lab")
MAX_DIRECTORY_BYTES = 64
"""107 minus `/spool/n9999/n9999_4294967294.4294967294`, a socket of slurmstepd, minus a margin."""
SPEC_NAME = "lab.json"
CLUSTER_NAME = "kubernetes"
"""Files of a Kubernetes that the lab runs itself: see kubernetes/layout.py."""
NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,21}")
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._+/-]+")


class Below:
    """A path given relative to the `directory` of the object that has it."""

    def __init__(self, relative: str) -> None:
        self.relative = relative

    def __get__(self, place: HasDirectory, _owner: type[HasDirectory]) -> Path:
        return place.directory / self.relative


class HasDirectory(Protocol):
    @property
    def directory(self) -> Path: ...


@dataclass(frozen=True)
class LabPaths:
    directory: Path

    def __post_init__(self) -> None:
        text = str(self.directory)
        if len(text.encode()) > MAX_DIRECTORY_BYTES:
            raise errors.UsageError(
                f"the lab's directory {text} is longer than {MAX_DIRECTORY_BYTES} bytes",
                hint="Unix sockets in it would be out of reach: choose a shorter one with --dir.",
            )
        if not _PLAIN_PATH.fullmatch(text):
            raise errors.UsageError(
                f"the lab's directory {text!r} may hold only letters, digits and . _ + - /",
                hint="Slurm's configuration files cannot name it otherwise: choose another one with --dir.",
            )

    spec = Below(SPEC_NAME)

    # -- configuration -------------------------------------------------------------------------------------
    etc = Below("etc")
    site_yaml = Below("etc/site.yaml")
    """All files in etc/ are rendered from it."""
    installed = Below("installed")
    """State of `penstock apply` for this lab."""
    slurm_conf = Below("etc/slurm.conf")
    pam = Below("etc/pam.d")
    """The /etc/pam.d that slurmds see, if the machine allows it."""
    gres_conf = Below("etc/gres.conf")
    cgroup_conf = Below("etc/cgroup.conf")
    slurmdbd_conf = Below("etc/slurmdbd.conf")
    daemons_slurm_conf = Below("etc/slurm-daemons.conf")
    """Read by slurmctld and slurmd if clients such as srun must listen on other addresses than they do."""
    daemons_slurmdbd_conf = Below("etc/slurmdbd/slurmdbd.conf")
    """The same for slurmdbd."""
    penstockd_conf = Below("etc/penstockd.json")
    intake_conf = Below("etc/intake.json")
    collector_conf = Below("etc/collector.json")
    admin_kubeconfig = Below("etc/admin.kubeconfig")
    viewer_kubeconfig = Below("etc/viewer.kubeconfig")
    penstockd_kubeconfig = Below("etc/penstockd.kubeconfig")
    fault_proxy_kubeconfig = Below("etc/faultproxy.kubeconfig")
    """penstockd's access to the API through the fault proxy."""
    fault_proxy_certificate = Below("etc/faultproxy.crt")
    fault_proxy_key = Below("etc/faultproxy.key")
    tls_certificate = Below("etc/devcluster.crt")
    tls_key = Below("etc/devcluster.key")
    tokens = Below("etc/devcluster-tokens.csv")
    cluster_nodes = Below("etc/devcluster-nodes.json")

    # -- programs ------------------------------------------------------------------------------------------
    bin = Below("bin")
    library = Below("lib")
    """Links to Penstock's Python code, for users who cannot read it where it is installed."""
    libexec = Below("libexec")

    # -- running state -------------------------------------------------------------------------------------
    run = Below("run")
    munge_run = Below("run/munge")
    munge_socket = Below("run/munge/munge.sock")
    mariadb_run = Below("run/mariadb")
    mariadb_socket = Below("run/mariadb/db.sock")
    slurm_run = Below("run/slurm")
    penstockd_run = Below("run/penstockd")
    penstockd_socket = Below("run/penstockd/penstockd.sock")
    inbox = Below("run/intake/inbox.json")
    """The intake's status file."""
    fault_proxy_control = Below("run/faultproxy.sock")
    log = Below("log")
    slurm_log = Below("log/slurm")
    """Slurm's own log files, with timestamps and slurmstepd's messages; `log` has the daemons' stderr."""

    # -- private state -------------------------------------------------------------------------------------
    munge_private = Below("munge")
    munge_key = Below("munge/munge.key")
    database = Below("database")
    database_scratch = Below("database.tmp")
    """Not the host's /tmp: MariaDB removes all temporary tables there at start, including those of others."""
    database_made = Below("database.made")
    """Exists once the database is complete; without it, `database` is left from an interrupted start."""
    controller_state = Below("state")
    attempts = Below("attempts")
    """penstockd's records of attempts, for the collector."""
    spool = Below("spool")
    gpu_devices = Below("dev")
    intake_state = Below("intake")
    devcluster_data = Below("devcluster")

    # -- the shared folder ---------------------------------------------------------------------------------
    nas = Below("nas")
    nas_homes = Below("nas/home")
    nas_drop = Below(f"nas/{wellknown.DROP_FOLDER}")
    """The drop folder; the intake creates submit/, processed/ and failed/ in it."""
    nas_submit = Below(f"nas/{wellknown.DROP_FOLDER}/{wellknown.DROP_SUBMIT}")
    nas_results = Below("nas/results")

    def user_kubeconfig(self, user: str) -> Path:
        """A user's access to his own pods, in clusters with RBAC."""
        return self.etc / "users" / f"{user}.kubeconfig"

    def component_record(self, name: str) -> Path:
        return self.run / f"{name}.json"

    def component_log(self, name: str) -> Path:
        return self.log / f"{name}.log"

    def nas_home(self, user: str) -> Path:
        return self.nas_homes / user


def is_known(entry: str) -> bool:
    """Whether a lab's directory may contain an entry of this name, finished or being written."""
    paths = (part.relative for part in vars(LabPaths).values() if isinstance(part, Below))
    known = {path.partition("/")[0] for path in paths} | {CLUSTER_NAME}
    return entry in known or any(entry.startswith(f".{name}.") for name in known)


def choose_directory(*, directory: str, name: str, environment: str) -> Path:
    """The lab's directory, from the options, else from the environment, else the default.

    Symbolic links are resolved, because this path is compared with the open files that /proc shows.
    """
    if directory or not name:
        return Path(directory or environment or DEFAULT_PARENT / "default").resolve()
    return (DEFAULT_PARENT / valid_name(name)).resolve()


def valid_name(name: str) -> str:
    """Return the name if it is valid for users, clusters and directories."""
    if not NAME_PATTERN.fullmatch(name):
        raise errors.UsageError(
            f"{name!r} is not a valid lab name",
            hint="Up to 22 lowercase letters, digits and dashes, starting with a letter.",
        )
    return name


def name_from(directory: Path) -> str:
    """A valid lab name, derived from the last component of its directory."""
    letters = re.sub(r"[^a-z0-9-]+", "-", directory.name.lower()).lstrip("-0123456789")
    return letters[:22].rstrip("-") or "default"


def closed_parent(directory: Path) -> Path | None:
    """The topmost parent directory that ordinary users cannot enter, if any."""
    for parent in reversed(directory.parents):
        if parent.exists() and not parent.stat().st_mode & stat.S_IXOTH:
            return parent
    return None
