"""What the compiler must know of a site to say whether a job can ever run there.

Deliberately small: the site file describes much more, and whoever reads it hands over this view. It can
also be written by hand, as JSON, TOML or YAML, for `penstock validate --site FILE`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock import wellknown
from penstock.model.podpolicy import PodPolicy


class NodeKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes that are alike: how many, what each has, and in which partitions they are (empty: all)."""

    count: int = 1
    cpus: int = 1
    memory_mib: int = 1024
    gpus: int = 0
    gpu_type: str = ""
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()


class PartitionView(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition as Slurm has it; `max_time` in any form --time takes, empty for no limit."""

    max_time: str = ""
    default: bool = False
    whole: bool = True
    """Whether all its nodes are among the site's `nodes`; else what fits there is not known."""


class InstanceClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A class of `penstock mkinst`: what an instance gets when the call does not say."""

    cpus: int = 2
    memory_mib: int = 4096
    priority_class: str = ""


class SiteView(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The site; every field has the default of a plain Slurm."""

    slurm: str = "22.05"
    complete: bool = True
    """Whether what is not named here does not exist. An existing slurm.conf can be changed by others at any
    time: a partition, feature, GRES or GPU type that is not known then is a warning and no error."""
    gres_types: tuple[str, ...] = ("gpu",)
    max_array_size: int = 1001
    partitions: dict[str, PartitionView] = {}
    nodes: tuple[NodeKind, ...] = ()
    missing_workdir: Literal["refuse", "tmp"] = "refuse"
    """What becomes of a job whose working directory is in none of its shared mounts."""
    memory_per_cpu_mib: int = 0
    """What a job gets that asks for no memory (DefMemPerCPU); 0 where nobody knows."""
    classes: dict[str, InstanceClass] = msgspec.field(default_factory=lambda: {"std": InstanceClass()})
    flavours: dict[str, int] = msgspec.field(
        default_factory=lambda: {"cpu": 0, "gpu1": 1, "gpu2": 2, "gpu4": 4, "gpu8": 8}
    )
    """GPUs of each flavour of `penstock mkinst`."""
    pods: PodPolicy = PodPolicy(namespace_quota={})
    """What penstockd makes pods by; of a site that does not say it, no quota is known."""
    penstockd: dict[str, Any] = {}
    """Where penstockd listens, slurm.conf is, and results go."""

    @property
    def is_outdated(self) -> bool:
        """Whether an older release wrote it: with all of penstockd's settings there, and less of pods."""
        return "hook_uids" in self.penstockd

    def partitions_of(self, named: str) -> list[str]:
        """Those of a --partition list that are known; without one, the default."""
        if not named:
            return [name for name, partition in self.partitions.items() if partition.default]
        return [name for name in named.split(",") if name in self.partitions]

    def gpu_types(self, partition: str = "") -> frozenset[str]:
        """Types of the GPUs in a partition, or of all; an empty one for GPUs without a type."""
        there = (
            kind for kind in self.nodes if not partition or partition in (kind.partitions or (partition,))
        )
        return frozenset(kind.gpu_type for kind in there if kind.gpus)

    def gpu_resource(self, partition: str = "") -> str:
        """What GPUs there are called whose type is not known: as all are, or else as usual."""
        found = set(map(self.pods.gpu_resource, self.gpu_types(partition)))
        return found.pop() if len(found) == 1 else wellknown.GPU_RESOURCE
