"""What a Slurm cluster is made of, as plain data: enough to render every configuration file it needs.

The lab fills this in for one machine; a site description can fill in the same fields for a real cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.model import releases


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """One Slurm node, served by one slurmd on its own port."""

    name: str
    port: int
    """0 for a node with a slurmd of its own on Slurm's usual port."""
    cpus: int = 8
    memory_mb: int = 32768
    gpus: int = 4
    gpu_type: str = ""
    features: tuple[str, ...] = ()
    host: str = "localhost"
    """Machine that its slurmd runs on; empty for the node itself."""
    address: str = ""
    """That machine's address; empty for the cluster's own."""


@dataclass(frozen=True, kw_only=True)
class PartitionSpec:
    """One queue; the jobs of a bridged one run as pods, those of the others as ordinary Slurm jobs."""

    name: str
    bridged: bool
    default: bool = False
    max_time: str = "7-00:00:00"
    default_time: str = "01:00:00"
    nodes: tuple[str, ...] = ()
    """Names of its nodes; nothing stands for all."""
    options: tuple[tuple[str, str], ...] = ()
    """More of the partition's line, as AllowGroups and its value."""


@dataclass(frozen=True, kw_only=True)
class BridgeHooks:
    """Absolute paths of the programs that Slurm runs for us."""

    prolog_slurmctld: str
    epilog: str
    task_prolog: str
    pam: bool = False
    """Whether slurmds have the PAM session that stops steps; TaskProlog is the weaker lock without it."""


@dataclass(frozen=True, kw_only=True)
class SlurmPlaces:
    """Absolute paths that Slurm's own daemons read and write."""

    munge_socket: str
    state_dir: str
    spool_dir: str
    pid_dir: str
    log_dir: str
    gpu_device_dir: str
    plugin_dir: str = ""
    """Where Slurm's plugins are; empty where its own build put them."""


@dataclass(frozen=True, kw_only=True)
class Priorities:
    """How Slurm orders what waits; the defaults are the measured ones."""

    parameters: tuple[str, ...] = (
        "bf_interval=5",
        "bf_continue",
        "sched_min_interval=100000",
        "sched_interval=5",
        "batch_sched_delay=0",
        "default_queue_depth=1000",
    )
    memory_per_cpu: int | None = None
    """MiB; None for half of a CPU's even share of the smallest node."""
    decay_half_life: str = "7-0"
    max_age: str = "1-0"
    weights: tuple[tuple[str, int], ...] = (("Age", 1000), ("Fairshare", 10000), ("JobSize", 500))

    def memory_of_a_cpu(self, nodes: Sequence[NodeSpec]) -> int:
        """DefMemPerCPU. Half of an even share: every CPU of the smallest node can be used, and room for big
        jobs stays.
        """
        if self.memory_per_cpu is not None:
            return self.memory_per_cpu
        return max(1, min(node.memory_mb // node.cpus for node in nodes) // 2)


@dataclass(frozen=True, kw_only=True)
class Database:
    """Where slurmdbd keeps its records, and as whom."""

    name: str = "slurm_acct_db"
    host: str = "localhost"
    user: str = ""
    """Empty for SlurmUser, known by its uid."""
    password: str = ""
    enforce: tuple[str, ...] = ("associations", "limits", "qos", "safe")


@dataclass(frozen=True, kw_only=True)
class SlurmCluster:
    """Everything that slurm.conf, gres.conf, cgroup.conf and slurmdbd.conf are rendered from."""

    name: str
    nodes: tuple[NodeSpec, ...]
    partitions: tuple[PartitionSpec, ...]
    controller_port: int
    accounting_port: int
    places: SlurmPlaces
    address: str = "127.0.0.1"
    """Where all daemons are reached."""
    listen_on_address_only: bool = True
    """Needs a machine whose own name stands for `address`; otherwise daemons listen on all addresses."""
    hooks: BridgeHooks | None = None
    """None leaves every bridge hook out: a plain Slurm, whatever its partitions say."""
    hooks_everywhere: bool = True
    """Whether slurm.conf names the hooks that slurmds run. Otherwise only the file does that the slurmds of
    bridged nodes read: other hosts need not have our programs."""
    submit_filter: bool = True
    """Whether sbatch shows the diagnostics of `penstock validate`."""
    slurm_user: str = "slurm"
    controller_host: str = "localhost"
    accounting_host: str = "localhost"
    accounting_address: str = ""
    """Where slurmdbd is reached; empty for `address`."""
    priorities: Priorities = Priorities()
    database: Database = Database()
    cred_expire: int = 10
    max_array_size: int = 10001
    kill_wait: int = 30
    prolog_epilog_timeout: int = 300
    prolog_slurmctld_timeout: int = 60
    """Seconds that PrologSlurmctld needs at most, below which an existing limit is raised."""
    release: releases.Release = releases.OLDEST
    """Release of Slurm that will read the files, such as (24, 11): option names differ between them."""

    @property
    def bridged_partitions(self) -> tuple[str, ...]:
        return tuple(partition.name for partition in self.partitions if partition.bridged)

    @property
    def default_partition(self) -> str:
        return next((partition.name for partition in self.partitions if partition.default), "")
