"""What a real Kubernetes needs on this machine; reports everything that is missing at once.

A test run without it continues on the dev cluster and says so; it is never skipped silently.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock import errors
from penstock_lab import subprocesses
from penstock_lab.kubernetes import builds, cgroups, machines

PROGRAMS = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    f"{machines.CNI_PROGRAMS}/ptp": "containernetworking-plugins",
    f"{machines.CNI_PROGRAMS}/host-local": "containernetworking-plugins",
    "docker-registry": "docker-registry",
    "dpkg-query": "dpkg",
    "ldd": "libc-bin",
    "openssl": "openssl",
    "setpriv": "util-linux",
}
"""Debian package by program."""
_CAP_SYS_ADMIN = 21


def missing(environment: Mapping[str, str]) -> list[str]:
    """Everything that is missing, as messages."""
    return [*_missing_go(environment), *missing_programs(), *_missing_rights()]


def require(environment: Mapping[str, str]) -> None:
    found = missing(environment)
    if found:
        raise errors.LabError(
            f"a real Kubernetes cannot run here: {'; '.join(found)}",
            hint="Use the dev cluster, or a cluster you have: --kubernetes KUBECONFIG",
        )


def _missing_go(environment: Mapping[str, str]) -> Iterator[str]:
    if not (builds.SOURCE / "go.mod").is_file():
        yield f"{builds.SOURCE / 'go.mod'} does not exist (only a checkout has it)"
        return
    try:
        builds.find_go(environment)
    except errors.LabError as error:
        yield f"{error.message} (Go {'.'.join(map(str, builds.OLDEST_GO))} or newer)"


def missing_programs() -> list[str]:
    """Programs that are not installed, with their packages."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=subprocesses.search_path()) is None]
    packages = " ".join(sorted({PROGRAMS[name] for name in absent}))
    return [f"not installed: {', '.join(absent)} (apt-get install {packages})"] if absent else []


def _missing_rights() -> Iterator[str]:
    if os.geteuid() != 0:
        yield "not root"
        return
    if not may_mount(Path("/proc/self/status").read_text()):
        yield "no right to mount (CAP_SYS_ADMIN)"
    closed = [str(tree) for tree in cgroups.trees() if not cgroups.writable(tree)]
    if closed:
        yield f"no right to make cgroups in {', '.join(closed)}"


def may_mount(status: str) -> bool:
    """Whether /proc/PID/status shows CAP_SYS_ADMIN."""
    values = dict(line.split(":", 1) for line in status.split("\n") if ":" in line)
    return bool(int(values.get("CapEff", "0").strip(), 16) >> _CAP_SYS_ADMIN & 1)
