"""All checks, in the order in which an administrator would go through them, and their report."""

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
"""Run on request only: they create a pod."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """State of a site; docs/reference/json.md describes every key."""

    version: int = wellknown.JSON_VERSION
    status: checks.Status
    """The worst status of all checks."""
    checks: tuple[checks.Result, ...]


def chosen(only: Sequence[str] = (), *, probe: bool = False) -> tuple[Check, ...]:
    """The checks with these names, or all. Raises UsageError for an unknown name."""
    known = {check.name: check for check in (*ALWAYS, *PROBES)}
    unknown = [name for name in only if name not in known]
    if unknown:
        raise errors.UsageError(
            f"there is no check {', '.join(unknown)}", hint=f"There are: {', '.join(known)}."
        )
    return tuple(known[name] for name in only) or (*ALWAYS, *(PROBES if probe else ()))


def report(wanted: Sequence[Check], live: Live, *, fix: bool = False) -> Report:
    """Run the checks one after another (blocking); with `fix`, fix what can be fixed without risk."""
    results = tuple(checks.run(wanted, live, fix=fix))
    return Report(status=checks.worst(results), checks=results)
