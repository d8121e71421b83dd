"""What a shell needs to know so that sbatch, squeue, sacct, kubectl and penstock act on the lab."""

from __future__ import annotations

import shlex

from penstock import wellknown
from penstock.lab import paths


def variables(place: paths.LabPaths, *, root: bool) -> dict[str, str]:
    """Names and values; who is not root may look at the cluster but not change it."""
    kubeconfig = place.admin_kubeconfig if root else place.viewer_kubeconfig
    return {
        wellknown.ENV_LAB: str(place.directory),
        wellknown.ENV_SLURM_CONF: str(place.slurm_conf),
        wellknown.ENV_KUBECONFIG: str(kubeconfig),
        wellknown.ENV_NAS: str(place.nas),
        wellknown.ENV_SOCKET: str(place.penstockd_socket),
    }


def shell_lines(place: paths.LabPaths, *, root: bool) -> str:
    """Lines for `eval` in a POSIX shell."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables(place, root=root).items()]
    exports.append(f'export PATH={shlex.quote(str(place.bin))}:"$PATH"')
    return "".join(f"{line}\n" for line in exports)
