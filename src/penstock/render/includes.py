"""What an existing Slurm gets: one file to include, and programs that chain the site's own hooks with ours.

Existing nodes and partitions are never redefined, and only those settings are replaced that Penstock needs,
keeping their previous values where possible.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from penstock.model import cluster as model
from penstock.model import releases
from penstock.render import slurmconf

NO_LIMIT = 65534  # a PrologEpilogTimeout without limit
HOOK_SETTINGS = ("PrologSlurmctld", "Epilog", "TaskProlog")
LISTS = ("PrologSlurmctld", "Epilog")  # may occur several times in slurm.conf, in some releases


@dataclasses.dataclass(frozen=True, kw_only=True)
class Existing:
    """What slurm.conf defines without Penstock."""

    settings: Mapping[str, str]  # by name in lower case
    nodes: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()

    def get(self, name: str) -> str:
        return self.settings.get(name.lower(), "")


def render_include(cluster: model.SlurmCluster, existing: Existing) -> str:
    lines = [f"{name}={value}" for name, value in replaced_settings(cluster, existing).items()]
    lines += _new_nodes(cluster, existing)
    return slurmconf.HEADER + "".join(f"{line}\n" for line in lines)


def replaced_settings(cluster: model.SlurmCluster, existing: Existing) -> dict[str, str]:
    """Settings in the include file, by name."""
    found: dict[str, str] = {}
    if cluster.hooks is not None:
        found["JobSubmitPlugins"] = _with_word(existing.get("JobSubmitPlugins"), "lua")
        if cluster.submit_filter:
            found["CliFilterPlugins"] = _with_word(existing.get("CliFilterPlugins"), "lua")
        found["PrologSlurmctld"] = cluster.hooks.prolog_slurmctld
        if cluster.hooks_everywhere:
            found |= _slurmd_settings(cluster, cluster.hooks, existing)
        else:
            seconds = cluster.prolog_slurmctld_timeout
            found |= _hook_timeouts(cluster, existing, seconds=seconds, beside="PrologSlurmctld")
    found["AuthInfo"] = _auth_info(existing.get("AuthInfo"), cluster.cred_expire)
    if existing.get("AccountingStorageType").endswith("slurmdbd"):
        found["AccountingStoreFlags"] = _with_word(existing.get("AccountingStoreFlags"), "job_comment")
    if any(node.host for node in _missing(cluster, existing)):
        found["SlurmdParameters"] = _with_word(existing.get("SlurmdParameters"), "config_overrides")
    if any(node.gpus for node in _missing(cluster, existing)):
        found["GresTypes"] = _with_word(existing.get("GresTypes"), "gpu")
    return found


def _slurmd_settings(
    cluster: model.SlurmCluster, hooks: model.BridgeHooks, existing: Existing
) -> dict[str, str]:
    """Hooks of slurmds of bridged nodes, with their timeouts."""
    found = dict(line.split("=", 1) for line in slurmconf.slurmd_hook_lines(hooks))
    seconds = cluster.prolog_epilog_timeout
    return found | _hook_timeouts(cluster, existing, seconds=seconds, beside="Epilog")


def _hook_timeouts(
    cluster: model.SlurmCluster, existing: Existing, *, seconds: int, beside: str
) -> dict[str, str]:
    """Raises timeouts that are too short for our hook beside the site's own; no limit stays no limit."""
    found = {}
    for option in releases.traits(cluster.release).hook_timeouts:
        limit = existing.get(option) or existing.get("PrologEpilogTimeout")
        if not limit.isdecimal() or int(limit) >= NO_LIMIT:
            continue
        shared = bool(existing.get(beside)) and not (beside == "Epilog" and option == "PrologTimeout")
        wanted = int(limit) + seconds if shared else max(int(limit), seconds)
        if wanted != int(limit):
            found[option] = str(min(wanted, NO_LIMIT - 1))
    return found


def render_slurmd_conf(cluster: model.SlurmCluster, existing: Existing, *, conf: str) -> str:
    """For slurmds that share a host: the site's slurm.conf with files per node, and with our hooks unless
    all slurmds run them.

    Slurm takes the last of two equal settings; slurmds of the site's own nodes never read this file.
    """
    places = cluster.places
    settings = {
        "SlurmdSpoolDir": f"{places.spool_dir}/%n",
        "SlurmdPidFile": f"{places.pid_dir}/slurmd-%n.pid",
        "SlurmdLogFile": f"{places.log_dir}/slurmd-%n.log",
    }
    if cluster.hooks is not None and not cluster.hooks_everywhere:
        settings |= _slurmd_settings(cluster, cluster.hooks, existing)
    lines = (f"include {conf}", *(f"{name}={value}" for name, value in settings.items()))
    return slurmconf.HEADER + "".join(f"{line}\n" for line in lines)


def _missing(cluster: model.SlurmCluster, existing: Existing) -> tuple[model.NodeSpec, ...]:
    return tuple(node for node in cluster.nodes if node.name not in existing.nodes)


def _new_nodes(cluster: model.SlurmCluster, existing: Existing) -> Iterator[str]:
    for node in _missing(cluster, existing):
        yield slurmconf.node_line(node, address=cluster.address)
    names = tuple(node.name for node in cluster.nodes)
    for partition in cluster.partitions:
        if partition.name not in existing.partitions:
            yield slurmconf.partition_line(partition, nodes=partition.nodes or names)


def _with_word(words: str, word: str) -> str:
    known = [each for each in words.split(",") if each]
    return ",".join(known if word in known else [*known, word])


def _auth_info(words: str, seconds: int) -> str:
    kept = [each for each in words.split(",") if each and not each.startswith("cred_expire=")]
    return ",".join([*kept, f"cred_expire={seconds}"])


def render_chain(kind: str, *, own: str, site: str) -> str:
    """A program that runs the site's own hook and then ours. `site` may be a pattern, as Slurm allows. The
    site's runs first: it may refuse a job, and after a job need not wait for ours. If the site's Epilog
    failed, ours is told so and still waits for the pods.
    """
    theirs = (
        f'for program in {site}; do\n  [ -x "$program" ] || continue\n'
        '  "$program" "$@" || { result=$?; break; }\ndone\n'
    )
    told, words = (f"  {own} failed\n", "") if kind == "Epilog" else ("", ' "$@"')
    head = f"#!/bin/sh\n# Written by penstock: the site's own {kind} with Penstock's.\nresult=0\n"
    refused = f'if [ "$result" -ne 0 ]; then\n{told}  exit "$result"\nfi\n'
    return f"{head}{theirs}{refused}exec {own}{words}\n"
