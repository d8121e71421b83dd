"""Where everything of a lab is: one class knows, nobody else joins path names.

The directory is open to all users down to what they need (configuration, hooks, sockets, NAS); what is
private is mode 0700 or 0600 of its owner. Its own path is short and plain because a unix socket's path has
at most 107 bytes, a `#!` line 255, and Slurm's files know neither blanks nor `%`.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from pathlib import Path

from penstock import errors, wellknown

DEFAULT_PARENT = Path("/var/lib/penstock-lab")
MAX_DIRECTORY_BYTES = 64
"""107 less `/spool/n9999/n9999_4294967294.4294967294`, a socket of slurmstepd, less a little."""
SPEC_NAME = "lab.json"
CLUSTER_NAME = "kubernetes"
"""What a cluster of the lab's own keeps: see lab.kubernetes.layout."""
NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,21}")
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._+/-]+")


@dataclass(frozen=True)
class LabPaths:
    """Every path of the lab in `directory`."""

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

    @property
    def spec(self) -> Path:
        return self.directory / SPEC_NAME

    # -- configuration ---------------------------------------------------------------------------------------
    @property
    def etc(self) -> Path:
        return self.directory / "etc"

    @property
    def site_yaml(self) -> Path:
        """What every file here is rendered from."""
        return self.etc / "site.yaml"

    @property
    def installed(self) -> Path:
        """Where `penstock apply` keeps its notes about this lab."""
        return self.directory / "installed"

    @property
    def slurm_conf(self) -> Path:
        return self.etc / "slurm.conf"

    @property
    def pam(self) -> Path:
        """The slurmds' own /etc/pam.d, where the lab has one."""
        return self.etc / "pam.d"

    @property
    def gres_conf(self) -> Path:
        return self.etc / "gres.conf"

    @property
    def cgroup_conf(self) -> Path:
        return self.etc / "cgroup.conf"

    @property
    def slurmdbd_conf(self) -> Path:
        return self.etc / "slurmdbd.conf"

    @property
    def daemons_slurm_conf(self) -> Path:
        """What slurmctld and the slurmds read where people's programs must not listen as they do."""
        return self.etc / "slurm-daemons.conf"

    @property
    def daemons_slurmdbd_conf(self) -> Path:
        """The same for slurmdbd."""
        return self.etc / "slurmdbd" / "slurmdbd.conf"

    @property
    def penstockd_conf(self) -> Path:
        return self.etc / "penstockd.json"

    @property
    def intake_conf(self) -> Path:
        return self.etc / "intake.json"

    @property
    def collector_conf(self) -> Path:
        return self.etc / "collector.json"

    @property
    def admin_kubeconfig(self) -> Path:
        return self.etc / "admin.kubeconfig"

    @property
    def viewer_kubeconfig(self) -> Path:
        return self.etc / "viewer.kubeconfig"

    def user_kubeconfig(self, user: str) -> Path:
        """What one user may see of a cluster that tells users apart."""
        return self.etc / "users" / f"{user}.kubeconfig"

    @property
    def penstockd_kubeconfig(self) -> Path:
        return self.etc / "penstockd.kubeconfig"

    @property
    def fault_proxy_kubeconfig(self) -> Path:
        """penstockd's way to the API where faults are to meet it."""
        return self.etc / "faultproxy.kubeconfig"

    @property
    def fault_proxy_certificate(self) -> Path:
        return self.etc / "faultproxy.crt"

    @property
    def fault_proxy_key(self) -> Path:
        return self.etc / "faultproxy.key"

    @property
    def tls_certificate(self) -> Path:
        return self.etc / "devcluster.crt"

    @property
    def tls_key(self) -> Path:
        return self.etc / "devcluster.key"

    @property
    def tokens(self) -> Path:
        return self.etc / "devcluster-tokens.csv"

    @property
    def cluster_nodes(self) -> Path:
        return self.etc / "devcluster-nodes.json"

    # -- programs --------------------------------------------------------------------------------------------
    @property
    def bin(self) -> Path:
        return self.directory / "bin"

    @property
    def library(self) -> Path:
        """Python code for people who cannot reach it where it is installed."""
        return self.directory / "lib"

    @property
    def libexec(self) -> Path:
        return self.directory / "libexec"

    # -- running state ---------------------------------------------------------------------------------------
    @property
    def run(self) -> Path:
        return self.directory / "run"

    @property
    def munge_run(self) -> Path:
        return self.run / "munge"

    @property
    def munge_socket(self) -> Path:
        return self.munge_run / "munge.sock"

    @property
    def mariadb_run(self) -> Path:
        return self.run / "mariadb"

    @property
    def mariadb_socket(self) -> Path:
        return self.mariadb_run / "db.sock"

    @property
    def slurm_run(self) -> Path:
        return self.run / "slurm"

    @property
    def penstockd_run(self) -> Path:
        return self.run / "penstockd"

    @property
    def penstockd_socket(self) -> Path:
        return self.penstockd_run / "penstockd.sock"

    @property
    def inbox(self) -> Path:
        """Where the intake says how it is."""
        return self.run / "intake" / "inbox.json"

    @property
    def fault_proxy_control(self) -> Path:
        return self.run / "faultproxy.sock"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def slurm_log(self) -> Path:
        """Slurm's own logs, with times and slurmstepd's words; `log` has what daemons say on stderr."""
        return self.log / "slurm"

    def component_record(self, name: str) -> Path:
        return self.run / f"{name}.json"

    def component_log(self, name: str) -> Path:
        return self.log / f"{name}.log"

    # -- private state ---------------------------------------------------------------------------------------
    @property
    def munge_private(self) -> Path:
        return self.directory / "munge"

    @property
    def munge_key(self) -> Path:
        return self.munge_private / "munge.key"

    @property
    def database(self) -> Path:
        return self.directory / "database"

    @property
    def database_scratch(self) -> Path:
        """Never the host's: a MariaDB that starts removes temporary tables there, whosever they are."""
        return self.directory / "database.tmp"

    @property
    def database_made(self) -> Path:
        """There once the database is whole; without it what is there is the rest of a start cut short."""
        return self.directory / "database.made"

    @property
    def controller_state(self) -> Path:
        return self.directory / "state"

    @property
    def attempts(self) -> Path:
        """What penstockd leaves for the collector."""
        return self.directory / "attempts"

    @property
    def spool(self) -> Path:
        return self.directory / "spool"

    @property
    def gpu_devices(self) -> Path:
        return self.directory / "dev"

    @property
    def intake_state(self) -> Path:
        return self.directory / "intake"

    @property
    def devcluster_data(self) -> Path:
        return self.directory / "devcluster"

    # -- the shared folder -----------------------------------------------------------------------------------
    @property
    def nas(self) -> Path:
        return self.directory / "nas"

    @property
    def nas_homes(self) -> Path:
        return self.nas / "home"

    def nas_home(self, user: str) -> Path:
        return self.nas_homes / user

    @property
    def nas_drop(self) -> Path:
        """The drop folder: the intake makes submit/, processed/ and failed/ in it."""
        return self.nas / wellknown.DROP_FOLDER

    @property
    def nas_submit(self) -> Path:
        return self.nas_drop / wellknown.DROP_SUBMIT

    @property
    def nas_results(self) -> Path:
        return self.nas / "results"


def is_known(entry: str) -> bool:
    """Whether a lab has something of this name in its directory, finished or being written."""
    place = LabPaths(Path("/lab"))
    names = {name for name, part in vars(LabPaths).items() if isinstance(part, property)}
    parts = {getattr(place, name).relative_to(place.directory).parts[0] for name in names}
    known = parts | {CLUSTER_NAME}
    return entry in known or any(entry.startswith(f".{name}.") for name in known)


def choose_directory(*, directory: str, name: str, environment: str) -> Path:
    """Where the lab is: the directory or the name the caller gave, else the environment's, else the default.

    Links are followed: processes are compared with this path by what the kernel says they have open.
    """
    if directory or not name:
        return Path(directory or environment or DEFAULT_PARENT / "default").resolve()
    return (DEFAULT_PARENT / valid_name(name)).resolve()


def valid_name(name: str) -> str:
    """The name itself, when users, clusters and directories can be called so."""
    if not NAME_PATTERN.fullmatch(name):
        raise errors.UsageError(
            f"{name!r} cannot be a lab's name",
            hint="Up to 22 small letters, digits and dashes, a letter first.",
        )
    return name


def name_from(directory: Path) -> str:
    """A valid lab name made from the last part of its directory."""
    letters = re.sub(r"[^a-z0-9-]+", "-", directory.name.lower()).lstrip("-0123456789")
    return letters[:22].rstrip("-") or "default"


def closed_parent(directory: Path) -> Path | None:
    """The first directory above `directory` that ordinary users cannot pass, if there is one."""
    for parent in reversed(directory.parents):
        if parent.exists() and not parent.stat().st_mode & stat.S_IXOTH:
            return parent
    return None
