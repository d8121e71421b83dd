"""A Slurm cluster as data, from which all of its configuration files are rendered.

The lab fills this in for one machine, a site description for a real cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.model import releases


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """A Slurm node with its own slurmd."""

    name: str
    port: int  # 0 for Slurm's usual port
    cpus: int = 8
    memory_mb: int = 32768
    gpus: int = 4
    gpu_type: str = ""
    features: tuple[str, ...] = ()
    host: str = "localhost"  # machine of its slurmd; empty for the node itself
    address: str = ""  # that machine's address; empty for the cluster's own


@dataclass(frozen=True, kw_only=True)
class PartitionSpec:
    """A partition; jobs of a bridged one run as pods, others as ordinary Slurm jobs."""

    name: str
    bridged: bool
    default: bool = False
    max_time: str = "7-00:00:00"
    default_time: str = "01:00:00"
    nodes: tuple[str, ...] = ()  # its nodes; empty for all
    options: tuple[tuple[str, str], ...] = ()  # more options of the partition's line, such as AllowGroups


@dataclass(frozen=True, kw_only=True)
class BridgeHooks:
    """Absolute paths of the hooks."""

    prolog_slurmctld: str
    epilog: str
    task_prolog: str
    pam: bool = False  # whether slurmds use the PAM session that stops steps; TaskProlog alone is weaker


@dataclass(frozen=True, kw_only=True)
class SlurmPlaces:
    """Absolute paths of Slurm's daemons."""

    munge_socket: str
    state_dir: str
    spool_dir: str
    pid_dir: str
    log_dir: str
    gpu_device_dir: str
    plugin_dir: str = ""  # Slurm's plugins; empty for the default of its build


@dataclass(frozen=True, kw_only=True)
class Priorities:
    """How Slurm orders pending jobs; the defaults were measured."""

    parameters: tuple[str, ...] = (
        "bf_interval=5",
        "bf_continue",
        "sched_min_interval=100000",
        "sched_interval=5",
        "batch_sched_delay=0",
        "default_queue_depth=1000",
    )
    memory_per_cpu: int | None = None  # MiB; None for half of a CPU's even share of the smallest node
    decay_half_life: str = "7-0"
    max_age: str = "1-0"
    weights: tuple[tuple[str, int], ...] = (("Age", 1000), ("Fairshare", 10000), ("JobSize", 500))

    def memory_of_a_cpu(self, nodes: Sequence[NodeSpec]) -> int:
        """DefMemPerCPU: half of an even share, so all CPUs are usable and big jobs still fit."""
        if self.memory_per_cpu is not None:
            return self.memory_per_cpu
        return max(1, min(node.memory_mb // node.cpus for node in nodes) // 2)


@dataclass(frozen=True, kw_only=True)
class Database:
    """slurmdbd's database and its user."""

    name: str = "slurm_acct_db"
    host: str = "localhost"
    user: str = ""  # empty for SlurmUser, authenticated by uid
    password: str = ""
    enforce: tuple[str, ...] = ("associations", "limits", "qos", "safe")


@dataclass(frozen=True, kw_only=True)
class SlurmCluster:
    """What slurm.conf, gres.conf, cgroup.conf and slurmdbd.conf are rendered from."""

    name: str
    nodes: tuple[NodeSpec, ...]
    partitions: tuple[PartitionSpec, ...]
    controller_port: int
    accounting_port: int
    places: SlurmPlaces
    address: str = "127.0.0.1"  # of all daemons
    listen_on_address_only: bool = True
    """Requires that the machine's own name resolves to `address`; otherwise daemons listen on all."""
    hooks: BridgeHooks | None = None  # None: plain Slurm without any hook, whatever its partitions say
    hooks_everywhere: bool = True
    """Whether slurm.conf names the hooks of slurmds. Otherwise only the file for slurmds of bridged nodes
    does, and other hosts need not have our programs.
    """
    submit_filter: bool = True  # whether sbatch shows the diagnostics of `penstock validate`
    slurm_user: str = "slurm"
    controller_host: str = "localhost"
    accounting_host: str = "localhost"
    accounting_address: str = ""  # slurmdbd's address; empty for `address`
    priorities: Priorities = Priorities()
    database: Database = Database()
    cred_expire: int = 10
    max_array_size: int = 10001
    kill_wait: int = 30
    prolog_epilog_timeout: int = 300
    prolog_slurmctld_timeout: int = 60
    """Seconds that PrologSlurmctld may need; a shorter existing limit is raised."""
    release: releases.Release = releases.OLDEST
    """The release of Slurm that reads the files: option names differ."""

    @property
    def bridged_partitions(self) -> tuple[str, ...]:
        return tuple(partition.name for partition in self.partitions if partition.bridged)

    @property
    def default_partition(self) -> str:
        return next((partition.name for partition in self.partitions if partition.default), "")
