"""Checks of our daemons: is each running, with the current settings of its file?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from penstock import pings, presence, wellknown
from penstock.doctor.checks import NotChecked, Problem, Registry, Skip
from penstock.doctor.live import Live
from penstock.hooks import wire
from penstock.render import units
from penstock.site import kubeobjects
from penstock.site.schema import Site

registry = Registry()


@registry.add("penstockd-settings", "penstockd runs with the current settings")
def penstockd_settings(live: Live) -> Iterator[Problem]:
    site = live.site.penstockd
    try:
        runs_with = pings.fingerprint(site.socket)
    except (OSError, wire.WireError):
        raise NotChecked("penstockd") from None
    yield from _old_settings("penstockd", runs_with, Path(site.config), _restart_penstockd(live.site))


@registry.add("intake", "the intake runs, with its current settings")
def intake(live: Live) -> Iterator[Problem]:
    lock = Path(live.site.intake.state_dir) / wellknown.INTAKE_LOCK
    harm = "files in the drop folder are not submitted"
    yield from _daemon(live, "intake", lock, Path(live.site.intake.config), units.INTAKE, harm)


@registry.add("collector", "the collector runs, with its current settings")
def collector(live: Live) -> Iterator[Problem]:
    lock = Path(live.site.results.state_dir) / wellknown.COLLECTOR_LOCK
    harm = "results of ended jobs are not written"
    yield from _daemon(live, "collector", lock, Path(live.site.results.config), units.COLLECTOR, harm)


def _daemon(live: Live, name: str, lock: Path, config: Path, unit: str, harm: str) -> Iterator[Problem]:
    if live.site.nas is None:
        raise Skip("the site file has no `nas`")
    found = presence.look(lock)
    if not found.runs:
        start = f"{_systemctl('start', unit)}, or however it is started here; its log says why it ended"
        yield Problem(f"the {name} does not run: {harm}", start)
        return
    yield from _old_settings(f"the {name}", found.settings, config, _systemctl("restart", unit))


def _old_settings(who: str, runs_with: str, config: Path, restart: str) -> Iterator[Problem]:
    if not config.exists():
        raise NotChecked("penstockd-config")
    if runs_with != presence.fingerprint(config):
        yield Problem(f"{who} runs with older settings than those in {config}", f"restart it: {restart}")


def _restart_penstockd(site: Site) -> str:
    if site.penstockd.restart:
        return shlex.join(site.penstockd.restart)
    if site.penstockd.run == "deployment":
        return f"kubectl -n {site.kubernetes.namespace} rollout restart deployment {kubeobjects.ACCOUNT}"
    return _systemctl("restart", units.PENSTOCKD)


def _systemctl(verb: str, unit: str) -> str:
    return f"systemctl {verb} {unit.removesuffix('.service')}"
