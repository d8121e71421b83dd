"""The lab's site.yaml, from which all its configuration is rendered.

A lab is configured like any site, with its own ports and paths.
"""

from __future__ import annotations

from typing import Any

from penstock import wellknown
from penstock.render import pam, yamltext
from penstock_lab import directories, paths, ports, spec
from penstock_lab.kubernetes import externalcluster, localimages
from penstock_lab.slurm import programs

HEADER = "# This lab, as a site. Written anew by every `penstock lab up`.\n"
GROUP = "workers"
START_TIMEOUT = 60
"""Images are local: a pod that has not started after a minute never will."""
FOREIGN_START_TIMEOUT = 300
"""An external cluster may have to pull images first."""


def render(place: paths.LabPaths, lab: spec.LabSpec, *, address: str | None, guarded: bool = False) -> str:
    """site.yaml of this lab; `address` is the only one that daemons listen on, if any; `guarded` says whether
    its slurmds have their own PAM configuration.
    """
    document = {
        "cluster": lab.name,
        "slurm": _slurm(place, lab, address, guarded=guarded),
        "kubernetes": {
            "kubeconfig": str(
                place.fault_proxy_kubeconfig if lab.fault_proxy else place.penstockd_kubeconfig
            ),
            "admin_kubeconfig": str(place.admin_kubeconfig),
            "namespace_pattern": spec.NAMESPACE_PATTERN,
        },
        "penstockd": _penstockd(place),
        "nas": {"path": str(place.nas), "drop": wellknown.DROP_FOLDER, "in_pods": not lab.foreign},
        "registry": {"default_image": externalcluster.IMAGE if lab.foreign else localimages.USERLAND},
        "node_groups": _groups(lab, address or ports.LOOPBACK),
        "intake": {
            "config": str(place.intake_conf),
            "state_dir": str(place.intake_state),
            "status": str(place.inbox),
            "workdir": str(place.nas_homes / "{user}"),
        },
        "results": {"config": str(place.collector_conf), "state_dir": str(place.attempts)},
        "timeouts": {"start": FOREIGN_START_TIMEOUT if lab.foreign else START_TIMEOUT},
        "partitions": {partition.name: _partition(partition.name, lab) for partition in spec.PARTITIONS},
    }
    return f"{HEADER}{yamltext.document(document)}\n"


def _slurm(place: paths.LabPaths, lab: spec.LabSpec, address: str | None, *, guarded: bool) -> dict[str, Any]:
    return {
        "manage": "whole",
        "conf": str(place.slurm_conf),
        "user": directories.SLURM,
        "address": address or ports.LOOPBACK,
        "port": lab.controller_port,
        "listen_on_address_only": address is not None,
        "munge_socket": str(place.munge_socket),
        "state_dir": str(place.controller_state),
        "spool_dir": str(place.spool),
        "pid_dir": str(place.slurm_run),
        "log_dir": str(place.slurm_log),
        "gpu_device_dir": str(place.gpu_devices),
        **programs.folders(lab),
        **({"pam_file": str(place.pam / pam.SERVICE)} if lab.bridge and guarded else {}),
        "restart": [
            str(place.bin / "penstock"),
            "lab",
            "restart",
            "slurmctld",
            "--dir",
            str(place.directory),
        ],
        "accounting": {"address": address or ports.LOOPBACK, "port": lab.accounting_port},
    }


def _penstockd(place: paths.LabPaths) -> dict[str, Any]:
    return {
        "run": "none",
        "socket": str(place.penstockd_socket),
        "config": str(place.penstockd_conf),
        "state_dir": str(place.installed),
        "libexec": str(place.libexec),
        "program": str(place.bin / "penstock"),
        "submit_filter": True,
    }


def _groups(lab: spec.LabSpec, address: str) -> dict[str, Any]:
    """Node groups: successive nodes of equal size are one group."""
    groups: dict[str, Any] = {}
    for node in lab.node_specs:
        size = {"cpus": node.cpus, "memory": f"{node.memory_mb}Mi", "gpus": node.gpus}
        last = next(reversed(groups.values()), None)
        if last is not None and size.items() <= last.items():
            last["nodes"] += f",{node.name}"
            continue
        slurmd = {"address": address, "first_port": node.port}
        groups[GROUP + str(len(groups) or "")] = {"nodes": node.name, **size, "slurmd": slurmd}
    return groups


def _partition(name: str, lab: spec.LabSpec) -> dict[str, Any]:
    chosen = next(partition for partition in spec.PARTITIONS if partition.name == name)
    mode = lab.mode if chosen.bridged and lab.bridge else "host"
    groups = list(_groups(lab, ports.LOOPBACK))
    return {"mode": mode, "nodes": groups, **({"default": True} if chosen.default else {})}
