"""Every file that is rendered from the lab's choices, written anew at each `up`."""

from __future__ import annotations

import os
import socket

import msgspec

from penstock import wellknown
from penstock.lab import files, passwd, paths, places, ports, sessions, spec, wrapper
from penstock.lab.kubernetes import foreign, images
from penstock.lab.slurm import programs
from penstock.model import cluster as model
from penstock.model import releases
from penstock.render import clifilter, hooks, slurmconf

KILL_WAIT = 30
PROLOG_EPILOG_TIMEOUT = 300
RELEASE_TIMEOUT = PROLOG_EPILOG_TIMEOUT - 30
"""The Epilog gives up in time to say why, before Slurm would kill it."""
DEFAULT_IMAGE = images.USERLAND
START_TIMEOUT = 60
"""A lab has its images: what has not started after a minute never will."""
FOREIGN_START_TIMEOUT = 300
"""Another's cluster may have to pull them first."""


def write(place: paths.LabPaths, lab: spec.LabSpec) -> str:
    """All rendered files."""
    if lab.bridge:
        sessions.guard(place)
    programs.link(place, lab)
    cluster = describe(place, lab, release=programs.release_of(place), address=own_loopback_address())
    files.write(place.slurm_conf, slurmconf.render_slurm_conf(cluster))
    files.write(place.gres_conf, slurmconf.render_gres_conf(cluster))
    files.write(place.cgroup_conf, slurmconf.render_cgroup_conf(cluster))
    secret = slurmconf.render_slurmdbd_conf(cluster)
    files.write(place.slurmdbd_conf, secret, mode=0o600, owner=passwd.owner_of(places.SLURM))
    for number in range(lab.gpus):
        (place.gpu_devices / f"gpu{number}").touch()
    if lab.bridge:
        _write_hooks(place, cluster)
        _write_penstockd_config(place, cluster, lab)
        files.write(place.intake_conf, _as_json(intake_config(place, cluster.release)))
        files.write(place.collector_conf, _as_json(collector_config(place)), mode=0o600)
    files.write(place.bin / "penstock", wrapper.render(), mode=0o755)
    return "written"


def describe(
    place: paths.LabPaths, lab: spec.LabSpec, *, release: releases.Release, address: str | None
) -> model.SlurmCluster:
    """The lab in the words that Slurm's configuration is rendered from."""
    return model.SlurmCluster(
        name=lab.name,
        nodes=lab.node_specs,
        partitions=spec.PARTITIONS,
        controller_port=lab.controller_port,
        accounting_port=lab.accounting_port,
        places=_slurm_places(place, lab),
        address=address or ports.LOOPBACK,
        listen_on_address_only=address is not None,
        hooks=_bridge_hooks(place) if lab.bridge else None,
        slurm_user=places.SLURM,
        kill_wait=KILL_WAIT,
        prolog_epilog_timeout=PROLOG_EPILOG_TIMEOUT,
        release=release,
    )


def own_loopback_address() -> str | None:
    """The loopback address this machine's own name stands for, if it stands for one.

    Slurm's daemons can listen on all addresses or on that of the machine's name, and on no other.
    """
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError:
        return None
    return address if address.startswith("127.") else None


def penstockd_config(
    place: paths.LabPaths, cluster: model.SlurmCluster, *, slurm_uid: int, trust: bool = False
) -> dict[str, object]:
    """What penstockd must know of this lab."""
    return {
        "socket": str(place.penstockd_socket),
        "kubeconfig": str(place.penstockd_kubeconfig),
        "slurm_conf": str(place.slurm_conf),
        "hook_uids": [slurm_uid, 0],
        "bridged_partitions": list(cluster.bridged_partitions),
        "shared_mounts": [str(place.nas)],
        "default_image": DEFAULT_IMAGE,
        "namespace_pattern": spec.NAMESPACE_PATTERN,
        "kill_wait": cluster.kill_wait,
        "log_level": "info",
        "start_timeout": START_TIMEOUT,
        "trusted_partitions": list(cluster.bridged_partitions) if trust else [],
        "state_dir": str(place.attempts),
        "results": str(place.nas_results),
    }


def collector_config(place: paths.LabPaths) -> dict[str, object]:
    """What the collector must know of this lab."""
    return {
        "state_dir": str(place.attempts),
        "results": str(place.nas_results),
        "slurm_conf": str(place.slurm_conf),
    }


def intake_config(place: paths.LabPaths, release: releases.Release) -> dict[str, object]:
    """What the intake must know of this lab."""
    return {
        "folder": str(place.nas_drop),
        "state": str(place.intake_state),
        "status": str(place.inbox),
        "slurm_conf": str(place.slurm_conf),
        "workdir": str(place.nas_homes / "{user}"),
        "slurm_release": releases.text(release),
    }


def _as_json(config: dict[str, object]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n"


def _write_hooks(place: paths.LabPaths, cluster: model.SlurmCluster) -> None:
    settings = hooks.HookSettings(
        libexec=str(place.libexec),
        socket=str(place.penstockd_socket),
        bridged_partitions=cluster.bridged_partitions,
        default_partition=cluster.default_partition,
        release_timeout=RELEASE_TIMEOUT,
        slurm_conf=str(place.slurm_conf),
        crash_points=os.environ.get(wellknown.ENV_CRASH_POINTS, ""),
        slurm_commands=str(place.bin),
    )
    advice = clifilter.render_cli_filter(
        penstock=str(place.bin / "penstock"),
        bridged_partitions=cluster.bridged_partitions,
        default_partition=cluster.default_partition,
    )
    files.write(place.etc / "cli_filter.lua", advice)
    for rendered in hooks.render_hooks(settings):
        target = (place.etc if rendered.name == "job_submit.lua" else place.libexec) / rendered.name
        files.directory(target.parent)
        files.write(target, rendered.content, mode=rendered.mode)


def _write_penstockd_config(place: paths.LabPaths, cluster: model.SlurmCluster, lab: spec.LabSpec) -> None:
    uid = passwd.owner_of(places.SLURM).uid
    config = penstockd_config(place, cluster, slurm_uid=uid, trust=lab.mode == "trust")
    if lab.fault_proxy:
        config |= {"kubeconfig": str(place.fault_proxy_kubeconfig)}
    if lab.foreign:  # its nodes do not have this machine's files, neither folders nor images
        config |= {
            "shared_mounts": [],
            "default_image": foreign.IMAGE,
            "start_timeout": FOREIGN_START_TIMEOUT,
        }
    files.write(place.penstockd_conf, _as_json(config))


def _slurm_places(place: paths.LabPaths, lab: spec.LabSpec) -> model.SlurmPlaces:
    return model.SlurmPlaces(
        munge_socket=str(place.munge_socket),
        state_dir=str(place.controller_state),
        spool_dir=str(place.spool),
        pid_dir=str(place.slurm_run),
        log_dir=str(place.slurm_log),
        gpu_device_dir=str(place.gpu_devices),
        plugin_dir=programs.plugin_dir(lab),
    )


def _bridge_hooks(place: paths.LabPaths) -> model.BridgeHooks:
    return model.BridgeHooks(
        prolog_slurmctld=str(place.libexec / wellknown.PROLOG),
        epilog=str(place.libexec / wellknown.EPILOG),
        task_prolog=str(place.libexec / wellknown.TASK_PROLOG),
        pam=sessions.are_guarded(),
    )
