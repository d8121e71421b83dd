"""Site → SlurmCluster, from which Slurm's configuration is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from penstock import wellknown
from penstock.model import cluster as model
from penstock.model import releases
from penstock.render import includes
from penstock.site.parts import Partition
from penstock.site.scalars import mebibytes
from penstock.site.schema import Site

Groups = Mapping[str, tuple[model.NodeSpec, ...]]
ADMIT_OVERTIME = 40
"""Seconds beyond `timeouts.admit` that PrologSlurmctld may need to finish a request."""


def release_of(site: Site) -> releases.Release | None:
    return releases.parse(site.slurm.release) if site.slurm.release is not None else None


def bridged_partitions(site: Site) -> tuple[str, ...]:
    return tuple(name for name, partition in site.partitions.items() if partition.mode != "host")


def default_partition(site: Site) -> str:
    """The default partition; empty if the site file has none."""
    return next((name for name, partition in site.partitions.items() if partition.default), "")


def describe(
    site: Site,
    groups: Groups,
    *,
    release: releases.Release,
    existing: includes.Existing | None = None,
    password: str = "",
) -> model.SlurmCluster:
    slurm, accounting, bridged = site.slurm, site.slurm.accounting, bridged_partitions(site)
    everywhere = hooks_everywhere(site, groups, existing)
    return model.SlurmCluster(
        name=site.cluster,
        nodes=tuple(node for nodes in groups.values() for node in nodes),
        partitions=tuple(_partition(name, each, groups) for name, each in site.partitions.items()),
        controller_port=slurm.port,
        accounting_port=accounting.port,
        places=model.SlurmPlaces(
            munge_socket=slurm.munge_socket,
            state_dir=slurm.state_dir,
            spool_dir=slurm.spool_dir,
            pid_dir=slurm.pid_dir,
            log_dir=slurm.log_dir,
            gpu_device_dir=slurm.gpu_device_dir,
            plugin_dir=slurm.plugin_dir or "",
        ),
        controller_host=slurm.controller,
        address=slurm.address or slurm.controller,
        listen_on_address_only=slurm.listen_on_address_only,
        hooks=_hooks(site, existing, everywhere=everywhere, release=release) if bridged else None,
        hooks_everywhere=everywhere,
        submit_filter=site.penstockd.submit_filter,
        slurm_user=slurm.user,
        accounting_host=accounting.host,
        accounting_address=accounting.address or accounting.host,
        priorities=priorities(site),
        database=model.Database(
            name=accounting.database,
            host=accounting.database_host,
            user=accounting.database_user or "",
            password=password,
            enforce=accounting.enforce,
        ),
        cred_expire=site.timeouts.cred_expire,
        max_array_size=slurm.max_array_size,
        kill_wait=site.timeouts.kill_wait,
        prolog_epilog_timeout=site.timeouts.epilog,
        prolog_slurmctld_timeout=site.timeouts.admit + ADMIT_OVERTIME,
        release=release,
    )


def priorities(site: Site) -> model.Priorities:
    """Scheduling priorities and default memory."""
    scheduler, weights = site.slurm.scheduler, site.slurm.scheduler.weights
    factors = (
        ("Age", weights.age),
        ("Fairshare", weights.fairshare),
        ("JobSize", weights.job_size),
        ("Partition", weights.partition),
        ("QOS", weights.qos),
    )
    return model.Priorities(
        parameters=scheduler.parameters,
        memory_per_cpu=mebibytes(scheduler.memory_per_cpu) if scheduler.memory_per_cpu else None,
        decay_half_life=weights.decay_half_life,
        max_age=weights.max_age,
        weights=tuple((factor, weight) for factor, weight in factors if weight),
    )


def hook_programs(site: Site) -> dict[str, str]:
    """Our hooks by their setting in slurm.conf."""
    libexec = PurePosixPath(site.penstockd.libexec)
    names = (wellknown.PROLOG, wellknown.EPILOG, wellknown.TASK_PROLOG)
    return {setting: str(libexec / name) for setting, name in zip(includes.HOOK_SETTINGS, names, strict=True)}


def chained(program: str) -> str:
    """The program that runs the site's own hook and then this one."""
    return f"{program}-chain"


def bridged_nodes(site: Site, groups: Groups) -> tuple[model.NodeSpec, ...]:
    """Nodes of at least one bridged partition."""
    used = {group for name in bridged_partitions(site) for group in site.partitions[name].nodes}
    return tuple(node for group, nodes in groups.items() if group in used for node in nodes)


def hooks_everywhere(site: Site, groups: Groups, existing: includes.Existing | None) -> bool:
    """Whether slurm.conf may name our hooks for every slurmd.

    True if bridged nodes have slurmds of the site's own, which read slurm.conf, or if all slurmds are on one
    host. Whether our programs exist there is checked by install/reach.py.
    """
    if existing is not None:
        return any(node.name in existing.nodes for node in bridged_nodes(site, groups))
    return len({node.host or node.name for nodes in groups.values() for node in nodes}) == 1


def _hooks(
    site: Site, existing: includes.Existing | None, *, everywhere: bool, release: releases.Release
) -> model.BridgeHooks:
    programs = hook_programs(site)
    if existing is not None:
        adds_up = {"Epilog"} if releases.traits(release).epilogs_add_up and not everywhere else set()
        programs = {
            setting: chained(own) if existing.get(setting) and setting not in adds_up else own
            for setting, own in programs.items()
        }
    prolog, epilog, task_prolog = (programs[setting] for setting in includes.HOOK_SETTINGS)
    return model.BridgeHooks(
        prolog_slurmctld=prolog,
        epilog=epilog,
        task_prolog=task_prolog,
        pam=site.slurm.pam_file is not None,
    )


def _partition(name: str, partition: Partition, groups: Groups) -> model.PartitionSpec:
    return model.PartitionSpec(
        name=name,
        bridged=partition.mode != "host",
        default=partition.default,
        max_time=partition.max_time,
        default_time=partition.default_time,
        nodes=tuple(node.name for group in partition.nodes for node in groups.get(group, ())),
        options=tuple(_options(partition)),
    )


def _options(partition: Partition) -> list[tuple[str, str]]:
    limits = partition.limits
    memory = mebibytes(limits.max_memory_per_node) if limits.max_memory_per_node else None
    found = (
        ("AllowGroups", ",".join(partition.allow_groups)),
        ("AllowAccounts", ",".join(partition.allow_accounts)),
        ("PriorityJobFactor", partition.priority),
        ("PriorityTier", partition.priority),
        ("QOS", partition.qos),
        ("PreemptMode", partition.preempt.upper() if partition.preempt else None),
        ("MaxNodes", limits.max_nodes),
        ("MaxCPUsPerNode", limits.max_cpus_per_node),
        ("MaxMemPerNode", memory),
    )
    return [(key, str(value)) for key, value in found if value not in (None, "")]
