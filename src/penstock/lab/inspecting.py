"""The invariants of a lab, for tests: every end-to-end test ends with this look at both worlds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock import clock, wellknown
from penstock.checking import confirming, looking, rendering, running
from penstock.kube import client, kubeconfig

SECONDS_TO_ANSWER = 30.0
"""A test may have taken a side down just before its end."""


async def check(variables: Mapping[str, str], patience: Mapping[str, float]) -> None:
    """AssertionError that shows what is wrong; an orphan is given the time that penstockd may need."""
    time = clock.SystemClock()
    kube = client.KubeClient(kubeconfig.load(Path(variables[wellknown.ENV_KUBECONFIG])))
    looker = looking.Looker(kube, variables[wellknown.ENV_SLURM_CONF], variables[wellknown.ENV_SOCKET])
    checker = running.Checker(looker.look, time, confirming.Confirmer(patience))
    deadline = time.now() + SECONDS_TO_ANSWER
    try:
        while (report := await checker.once()).unknown and time.now() < deadline:
            await time.sleep(0.2)
    finally:
        await kube.close()
    if report.violations or report.unknown:
        raise AssertionError(rendering.as_text(report.violations) or f"cannot be checked: {report.unknown}")
