"""Environment variables that make sbatch, squeue, sacct, kubectl and penstock act on the lab."""

from __future__ import annotations

import shlex
from pathlib import Path

from penstock import wellknown
from penstock_lab import paths, subprocesses


def variables(place: paths.LabPaths, *, root: bool, user: str = "") -> dict[str, str]:
    """The variables; users other than root get read-only access to the cluster."""
    own = place.user_kubeconfig(user)
    seen = own if own.exists() else place.viewer_kubeconfig
    kubeconfig = place.admin_kubeconfig if root else seen
    return {
        wellknown.ENV_LAB: str(place.directory),
        wellknown.ENV_SLURM_CONF: str(place.slurm_conf),
        wellknown.ENV_KUBECONFIG: str(kubeconfig),
        wellknown.ENV_NAS: str(place.nas),
        wellknown.ENV_RESULTS: str(place.nas_results),
        wellknown.ENV_SOCKET: str(place.penstockd_socket),
        wellknown.ENV_SITE: str(place.site_yaml),
    }


def slurm(place: paths.LabPaths, *, conf: Path | None = None) -> dict[str, str]:
    """The environment of Slurm's daemons (with their own `conf`) and of programs that run its commands."""
    return {
        wellknown.ENV_SLURM_CONF: str(conf or place.slurm_conf),
        "PATH": f"{place.bin}:{subprocesses.search_path()}",
    }


def shell_lines(place: paths.LabPaths, *, root: bool, user: str = "") -> str:
    """Lines for `eval` in a POSIX shell."""
    wanted = variables(place, root=root, user=user)
    exports = [f"export {name}={shlex.quote(value)}" for name, value in wanted.items()]
    exports.append(f'export PATH={shlex.quote(str(place.bin))}:"$PATH"')
    return "".join(f"{line}\n" for line in exports)
