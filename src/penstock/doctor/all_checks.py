"""Every check, in the order in which a person would look, and what those that are chosen find."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock import errors, wellknown
from penstock.doctor import checks, kubernetes_side, penstock_side, probepod, runconfig, services, slurm_side
from penstock.doctor.checks import Check
from penstock.doctor.live import Live

ALWAYS: tuple[Check, ...] = (
    *slurm_side.registry,
    *runconfig.registry,
    *kubernetes_side.registry,
    *penstock_side.registry,
    *services.registry,
)
PROBES: tuple[Check, ...] = tuple(probepod.registry)
"""They make a pod, and so are run only when asked for."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How a site is: docs/reference/json.md describes every key."""

    version: int = wellknown.JSON_VERSION
    status: checks.Status
    """The worst."""
    checks: tuple[checks.Result, ...]


def chosen(only: Sequence[str] = (), *, probe: bool = False) -> tuple[Check, ...]:
    """Those of these names, or all; UsageError names them when one is unknown."""
    known = {check.name: check for check in (*ALWAYS, *PROBES)}
    unknown = [name for name in only if name not in known]
    if unknown:
        raise errors.UsageError(
            f"there is no check {', '.join(unknown)}", hint=f"There are: {', '.join(known)}."
        )
    return tuple(known[name] for name in only) or (*ALWAYS, *(PROBES if probe else ()))


def report(wanted: Sequence[Check], live: Live, *, fix: bool = False) -> Report:
    """What they find; with `fix`, what can be put right without risk is. Blocks: each asks in its turn."""
    results = tuple(checks.run(wanted, live, fix=fix))
    return Report(status=checks.worst(results), checks=results)
