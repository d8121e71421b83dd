"""Checks a lab's invariants; every end-to-end test ends with it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock import clock, wellknown
from penstock.audit import checkruns, collect, confirmed, reports
from penstock.kube import client
from penstock_lab.kubernetes import api

SECONDS_TO_ANSWER = 30.0
"""A test may have stopped Slurm or Kubernetes just before its end."""


async def check(variables: Mapping[str, str], patience: Mapping[str, float]) -> None:
    """Raises AssertionError with the violations; `patience` is the time that penstockd may need."""
    time = clock.SystemClock()
    kube = client.KubeClient(api.access_by(Path(variables[wellknown.ENV_KUBECONFIG])))
    looker = collect.Looker(kube, variables[wellknown.ENV_SLURM_CONF], variables[wellknown.ENV_SOCKET])
    checker = checkruns.Checker(looker.look, time, confirmed.Confirmer(patience))
    deadline = time.now() + SECONDS_TO_ANSWER
    try:
        with its_programs(variables):
            while (report := await checker.once()).unknown and time.now() < deadline:
                await time.sleep(0.2)
    finally:
        await kube.close()
    if report.violations or report.unknown:
        raise AssertionError(reports.as_text(report.violations) or f"cannot be checked: {report.unknown}")


@contextlib.contextmanager
def its_programs(variables: Mapping[str, str]) -> Iterator[None]:
    """Put the lab's Slurm commands on this process's PATH: those of another release may be incompatible."""
    before = os.environ["PATH"]
    os.environ["PATH"] = variables["PATH"]
    try:
        yield
    finally:
        os.environ["PATH"] = before
