"""Every check, in the order in which a person would look."""

from __future__ import annotations

from penstock.doctor import bridge, kubernetes, probing, runconfig, services, slurm
from penstock.doctor.checks import Check

ALWAYS: tuple[Check, ...] = (
    *slurm.registry.checks,
    *runconfig.registry.checks,
    *kubernetes.registry.checks,
    *bridge.registry.checks,
    *services.registry.checks,
)
PROBES: tuple[Check, ...] = tuple(probing.registry.checks)
"""They make a pod, and so are run only when asked for."""
