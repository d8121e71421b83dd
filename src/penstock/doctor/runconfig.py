"""Compares slurmctld's running configuration with its slurm.conf and with the site file's cluster name."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Iterator

from penstock.doctor.checks import Problem, Registry
from penstock.doctor.live import Live
from penstock.slurm import reader

registry = Registry()
HASH = "HASH_VAL"
"""Key in scontrol's output: whether slurmctld and scontrol have read the same slurm.conf."""
OWN_CONF = "SLURM_CONF"
COMPARED = (
    "AccountingStorageType",
    "AccountingStoreFlags",
    "AuthInfo",
    "DefMemPerCPU",
    "DefMemPerNode",
    "GresTypes",
    "KillWait",
    "MaxArraySize",
    "MaxJobCount",
    "MinJobAge",
    "PreemptMode",
    "PreemptType",
    "PriorityType",
    "SchedulerParameters",
    "SchedulerType",
    "SelectType",
    "SelectTypeParameters",
    "SlurmdTimeout",
)
"""Settings that scontrol shows as they are in slurm.conf."""


@registry.add("slurm-restarted", "slurmctld runs with the current slurm.conf")
def slurm_restarted(live: Live) -> Iterator[Problem]:
    restart = shlex.join(live.site.slurm.restart)
    differing = list(_differing(live))
    if differing:
        yield Problem(
            f"slurmctld does not run with the settings in slurm.conf: {'; '.join(differing)}",
            f"restart slurmctld: {restart}",
        )
    elif _hash(live).startswith("Different"):
        yield Problem(
            f"{_its_conf(live)} was changed after slurmctld had read it",
            f"`scontrol reconfigure`; for settings that need more, restart slurmctld: {restart}",
        )


def _differing(live: Live) -> Iterator[str]:
    for name in COMPARED:
        configured, runs = live.conf.get(name), live.settings.get(name, "")
        if configured and _plain(name, configured) != _plain(name, runs):
            yield f"{name}={configured}, it runs with {runs or 'none'}"


def _plain(name: str, value: str) -> object:
    """Normalized: 30 equals "30 sec", the order of lists and the prefix of plugin names do not matter."""
    if name.endswith("Type"):
        return value.lower().rpartition("/")[2]
    number = re.fullmatch(r"(\d+)(?: \w+)?", value)
    return int(number[1]) if number else frozenset(value.lower().split(","))


def _hash(live: Live) -> str:
    """HASH_VAL for the file that slurmctld reads, which may be one that includes the site's."""
    path = _its_conf(live)
    if path == live.site.slurm.conf:
        return live.settings.get(HASH, "")
    return asyncio.run(reader.SlurmReader(path).configuration()).get(HASH, "")


def _its_conf(live: Live) -> str:
    """slurmctld's own slurm.conf if this host has it: slurmctld may run on another one."""
    own = live.settings.get(OWN_CONF, "")
    return own if own and os.access(own, os.R_OK) else live.site.slurm.conf


@registry.add("cluster-name", "slurmctld belongs to the site file's cluster")
def cluster_name(live: Live) -> Iterator[Problem]:
    runs, expected = live.settings.get("ClusterName", ""), live.site.cluster
    if runs.lower() != expected.lower():
        yield Problem(
            f"slurmctld's ClusterName is {runs or 'not set'}, the site file says {expected}",
            f"write `cluster: {runs}` if this is the right Slurm; else correct `slurm.conf` of the site file",
        )
