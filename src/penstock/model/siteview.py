"""The part of a site that decides whether a job can ever run there.

Deliberately small: the reader of a site file passes this view on. It can also be written by hand, as JSON,
TOML or YAML, for `penstock validate --site FILE`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock import wellknown
from penstock.model.podpolicy import PodPolicy


class NodeKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Identical nodes: how many, what each has, and their partitions (empty: all)."""

    count: int = 1
    cpus: int = 1
    memory_mib: int = 1024
    gpus: int = 0
    gpu_type: str = ""
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()


class PartitionView(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition of Slurm's; `max_time` as for --time, empty for no limit."""

    max_time: str = ""
    default: bool = False
    whole: bool = True
    """Whether all its nodes are among the site's `nodes`; otherwise it is unknown what fits."""


class InstanceClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A class of `penstock mkinst`: the defaults for an instance."""

    cpus: int = 2
    memory_mib: int = 4096
    priority_class: str = ""


class SiteView(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The site; every field has plain Slurm's default."""

    slurm: str = "22.05"
    complete: bool = True
    """Whether anything not named here does not exist. An existing slurm.conf may be changed by others at
    any time: an unknown partition, feature, GRES or GPU type is then a warning, not an error.
    """
    gres_types: tuple[str, ...] = ("gpu",)
    max_array_size: int = 1001
    partitions: dict[str, PartitionView] = {}
    nodes: tuple[NodeKind, ...] = ()
    missing_workdir: Literal["refuse", "tmp"] = "refuse"
    """For jobs whose working directory is outside the shared mounts."""
    memory_per_cpu_mib: int = 0  # DefMemPerCPU; 0 if unknown
    classes: dict[str, InstanceClass] = msgspec.field(default_factory=lambda: {"std": InstanceClass()})
    flavours: dict[str, int] = msgspec.field(
        default_factory=lambda: {"cpu": 0, "gpu1": 1, "gpu2": 2, "gpu4": 4, "gpu8": 8}
    )
    """GPUs of each flavour of `penstock mkinst`."""
    pods: PodPolicy = PodPolicy(namespace_quota={})
    """penstockd's policy; a site without one has no known quota."""
    penstockd: dict[str, Any] = {}  # penstockd's socket, slurm.conf, and the results folder

    @property
    def is_outdated(self) -> bool:
        """Whether an older release wrote it: with all of penstockd's settings, and less about pods."""
        return "hook_uids" in self.penstockd

    def partitions_of(self, named: str) -> list[str]:
        """The known partitions of a --partition list; the default for an empty one."""
        if not named:
            return [name for name, partition in self.partitions.items() if partition.default]
        return [name for name in named.split(",") if name in self.partitions]

    def gpu_types(self, partition: str = "") -> frozenset[str]:
        """Types of the GPUs in a partition, or in all; "" for GPUs without a type."""
        there = (
            kind for kind in self.nodes if not partition or partition in (kind.partitions or (partition,))
        )
        return frozenset(kind.gpu_type for kind in there if kind.gpus)

    def gpu_resource(self, partition: str = "") -> str:
        """The resource name of GPUs of unknown type: the only one there, or else the usual one."""
        found = set(map(self.pods.gpu_resource, self.gpu_types(partition)))
        return found.pop() if len(found) == 1 else wellknown.GPU_RESOURCE
