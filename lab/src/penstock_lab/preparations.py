"""Files that daemons need before they start, made once: munge key, database, certificates."""

from __future__ import annotations

import secrets
import shutil

import msgspec

from penstock import errors
from penstock_lab import certificates, components, directories, files, passwd, paths, spec, subprocesses

MUNGE_KEY_BYTES = 128
NEEDED_PROGRAMS = (
    "munged",
    "mariadbd",
    "mariadb-install-db",
    "slurmdbd",
    "slurmctld",
    "slurmd",
    "scontrol",
    "openssl",
    "useradd",
)


def require_programs() -> None:
    """Raises LabError with all programs that are not installed."""
    missing = [
        name for name in NEEDED_PROGRAMS if shutil.which(name, path=subprocesses.search_path()) is None
    ]
    if missing:
        packages = " ".join(sorted({subprocesses.PACKAGES[name] for name in missing}))
        raise errors.LabError(f"not installed: {', '.join(missing)}", hint=f"apt-get install {packages}")


def make_munge_key(place: paths.LabPaths) -> str:
    """The lab has its own key: the host's credentials are not valid in the lab, nor the reverse."""
    key = secrets.token_bytes(MUNGE_KEY_BYTES)
    files.write_once(place.munge_key, key, mode=0o400, owner=passwd.owner_of(directories.MUNGE))
    return "ready"


def make_database(place: paths.LabPaths) -> str:
    """MariaDB's files; only SlurmUser may log in, through the socket, by its uid."""
    if place.database_made.exists():
        return "kept"
    for leftover in place.database.iterdir():
        files.remove(leftover)
    argv = (
        "mariadb-install-db",
        "--no-defaults",
        f"--datadir={place.database}",
        f"--tmpdir={place.database_scratch}",
        "--skip-test-db",
        "--auth-root-authentication-method=socket",
        f"--auth-root-socket-user={directories.SLURM}",
        "--skip-name-resolve",
        *components.MARIADB_SIZES,
    )
    subprocesses.run(argv, user=directories.SLURM)
    files.write(place.database_made, "")
    return "made"


def make_certificates(place: paths.LabPaths, lab: spec.LabSpec) -> str:
    """The dev cluster's certificate, tokens, kubeconfigs and list of nodes."""
    certificates.ensure(place, port=lab.devcluster_port, penstockd_owner=passwd.owner_of(directories.SLURM))
    nodes = [
        {"name": node.name, "cpus": node.cpus, "memory_mb": node.memory_mb, "gpus": node.gpus, "labels": {}}
        for node in lab.node_specs
    ]
    files.write(place.cluster_nodes, msgspec.json.encode(nodes))
    return "ready"
