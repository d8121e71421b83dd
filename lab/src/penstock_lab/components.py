"""The lab's daemons.

Each runs in the foreground in its own session, so the pid we start is the daemon's, and all its output goes
to one log. Health checks are cheap and need no privileges.
"""

from __future__ import annotations

import sys

from penstock import wellknown
from penstock_lab import component, health, loopback, pamsessions, paths, shellenv, spec
from penstock_lab.faultproxy import labcomponent as faulty
from penstock_lab.kubernetes import variants
from penstock_lab.slurm import firststate, programs

Component = component.Component

MUNGED = "munged"
MARIADBD = "mariadbd"
SLURMDBD = "slurmdbd"
SLURMCTLD = "slurmctld"
DEVCLUSTER = "devcluster"
PENSTOCKD = "penstockd"
INTAKE = "intake"
COLLECTOR = "collector"


def all_components(place: paths.LabPaths, lab: spec.LabSpec) -> tuple[Component, ...]:
    """Every daemon of this lab, dependencies first."""
    slurm = (_munged(place), _mariadbd(place), _slurmdbd(place, lab), _slurmctld(place, lab))
    slurmds = tuple(_slurmd(place, lab, number) for number in range(lab.slurmds))
    if not lab.bridge:
        return (*slurm, *slurmds)
    cluster = variants.all_components(place, lab)
    if lab.kubernetes == spec.DEV:
        cluster = (_devcluster(place, lab),)
    proxy = faulty.all_components(place, lab)
    own = (_penstockd(place, lab), _intake(place))
    return (*slurm, *cluster, *proxy, *own, *slurmds, _collector(place))


def _munged(place: paths.LabPaths) -> Component:
    return Component(
        name=MUNGED,
        user="munge",
        after=("munge key",),
        argv=(
            "munged",
            "--foreground",
            f"--key-file={place.munge_key}",
            f"--socket={place.munge_socket}",
            f"--pid-file={place.munge_run}/munged.pid",
            f"--seed-file={place.munge_private}/munge.seed",
            f"--log-file={place.munge_private}/munged.log",
        ),
        check=lambda: health.unix_socket(place.munge_socket),
    )


def _mariadbd(place: paths.LabPaths) -> Component:
    return Component(
        name=MARIADBD,
        user="slurm",
        after=("database files",),
        argv=(
            "mariadbd",
            "--no-defaults",
            f"--datadir={place.database}",
            f"--socket={place.mariadb_socket}",
            f"--pid-file={place.mariadb_run}/mariadbd.pid",
            "--skip-networking",
            "--skip-log-bin",
            "--skip-name-resolve",
            f"--tmpdir={place.database_scratch}",
            "--character-set-server=utf8mb4",  # for slurmdbd's tables: names may be Korean
            *MARIADB_SIZES,
            "--innodb-lock-wait-timeout=900",
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-fast-shutdown=2",
        ),
        check=lambda: health.unix_socket(place.mariadb_socket, greets=True),
        stop_seconds=10.0,
    )


MARIADB_SIZES = ("--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M")
"""Keep a lab's database below 60 MB. mariadb-install-db needs the same values."""


def _slurmdbd(place: paths.LabPaths, lab: spec.LabSpec) -> Component:
    return Component(
        name=SLURMDBD,
        user="slurm",
        on_loopback=True,
        after=(MUNGED, MARIADBD, "configuration"),
        argv=("slurmdbd", "-D"),
        environment=shellenv.slurm(place, conf=loopback.accounting_conf(place))
        | {"MYSQL_UNIX_PORT": str(place.mariadb_socket)},
        port=lab.accounting_port,
        check=lambda: health.accounting(place, lab.accounting_port),
    )


def _slurmctld(place: paths.LabPaths, lab: spec.LabSpec) -> Component:
    return Component(
        name=SLURMCTLD,
        user="slurm",
        on_loopback=True,
        after=("accounts",),
        argv=("slurmctld", "-D", "-f", str(loopback.slurm_conf(place))),
        environment=shellenv.slurm(place, conf=loopback.slurm_conf(place)),
        port=lab.controller_port,
        check=lambda: health.controller(place, lab.controller_port),
    )


def _slurmd(place: paths.LabPaths, lab: spec.LabSpec, number: int) -> Component:
    node = lab.node_specs[number]
    return Component(
        name=f"slurmd-{node.name}",
        on_loopback=True,
        after=(firststate.STEP,),
        argv=(
            *(pamsessions.prefix(place) if lab.bridge else ()),
            "slurmd",
            "-D",
            "-N",
            node.name,
            "-f",
            str(loopback.slurm_conf(place)),
            *programs.slurmd_options(lab),
        ),
        environment=shellenv.slurm(place, conf=loopback.slurm_conf(place)),
        port=node.port,
        check=lambda: health.node(place, node.name, node.port),
        complaint=lambda: health.drained(place, node.name),
    )


def _devcluster(place: paths.LabPaths, lab: spec.LabSpec) -> Component:
    options = {
        "--data-dir": place.devcluster_data,
        "--port": lab.devcluster_port,
        "--tls-cert": place.tls_certificate,
        "--tls-key": place.tls_key,
        "--tokens": place.tokens,
        "--nodes": place.cluster_nodes,
    }
    return Component(
        name=DEVCLUSTER,
        after=("certificates",),
        argv=(sys.executable, "-m", "penstock_lab.devcluster", *component.words(options)),
        environment=component.python_environment(),
        port=lab.devcluster_port,
        check=lambda: health.kubernetes(place.tls_certificate, lab.devcluster_port),
        stop_seconds=8.0,
    )


def _penstockd(place: paths.LabPaths, lab: spec.LabSpec) -> Component:
    options = {"--config": place.penstockd_conf, "--user": "slurm"}
    api = (faulty.NAME,) if lab.fault_proxy else cluster_ready_after(lab)
    return Component(
        name=PENSTOCKD,
        after=(firststate.STEP, *api),
        argv=(sys.executable, "-m", "penstock", "daemon", *component.words(options)),
        environment=component.python_environment() | shellenv.slurm(place),
        check=lambda: health.unix_socket(place.penstockd_socket),
    )


def _intake(place: paths.LabPaths) -> Component:
    return Component(
        name=INTAKE,
        after=(firststate.STEP,),
        argv=(sys.executable, "-m", "penstock", "intake", "--config", str(place.intake_conf)),
        environment=component.python_environment() | shellenv.slurm(place),
        check=lambda: health.inbox(place.inbox),
        complaint=lambda: health.inbox_problem(place.inbox),
        stop_seconds=15.0,
    )


def cluster_ready_after(lab: spec.LabSpec) -> tuple[str, ...]:
    """The steps after which penstockd can use the cluster."""
    return (DEVCLUSTER,) if lab.kubernetes == spec.DEV else variants.ready_after(lab)


def _collector(place: paths.LabPaths) -> Component:
    return Component(
        name=COLLECTOR,
        after=(firststate.STEP,),
        argv=(sys.executable, "-m", "penstock", "collector", "--config", str(place.collector_conf)),
        environment=component.python_environment() | shellenv.slurm(place),
        check=lambda: health.lock(place.attempts / wellknown.COLLECTOR_LOCK),
        stop_seconds=10.0,
    )
