"""lab.json: what a lab is, written before anything else is made and removed after everything else is gone.

A directory without it is not a lab, and nothing in it is ever touched.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock import __version__, errors
from penstock.model import cluster as model
from penstock_lab import files, paths
from penstock_lab.kubernetes import layout

PARTITIONS = (
    model.PartitionSpec(name="gpu", bridged=True, default=True),
    model.PartitionSpec(name="cpu", bridged=True),
    model.PartitionSpec(name="host", bridged=False),
)
ACCOUNTS = ("research", "teaching")
DEFAULT_NODES = 4
DEV, REAL, KWOK = "dev", "real", "kwok"
NAMESPACE_PATTERN = "user-{user}"
MAX_NODES = 5000
PRETENDED_SLURMDS = 64
"""The rest of a pretended cluster's nodes is declared in Slurm and down there."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a cluster that was there before the lab."""

    name: str
    cpus: int
    memory_mb: int
    gpus: int


class LabSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The choices a lab was made with; what is not here follows from them."""

    name: str
    port_base: int
    user: str
    user_created: bool
    nodes: int = DEFAULT_NODES
    cpus: int = 8
    memory_gb: int = 32
    gpus: int = 4
    bridge: bool = True
    """False leaves dev cluster, penstockd and hooks out: a plain Slurm, for tests of the lab itself."""
    kubernetes: str = DEV
    """dev, real, kwok, or the path of a kubeconfig."""
    kubernetes_version: str = ""
    """Minor version such as 1.35 of one that is built here; empty for the newest."""
    members: tuple[Member, ...] = ()
    """The nodes, when they are somebody else's."""
    programs: str = ""
    """Where the programs of a Kubernetes of the lab's own were built."""
    pretender: str = ""
    """Where kwok was built, if nodes are only to seem to be there."""
    slurm: str = ""
    """Release such as 24.11; empty for whatever the machine has."""
    slurm_programs: str = ""
    """Where that release is, if it is not the machine's own."""
    mode: str = "check"
    """How double scheduling is avoided in the bridged partitions: check, or trust (not at all)."""
    fault_proxy: bool = False
    """Whether penstockd reaches the API through a proxy that breaks things on demand."""
    complete: bool = False
    """Whether the lab was up once; until then a failure removes everything again."""
    version: str = __version__

    @property
    def controller_port(self) -> int:
        return self.port_base

    @property
    def accounting_port(self) -> int:
        return self.port_base + 1

    @property
    def devcluster_port(self) -> int:
        return self.port_base + 2

    @property
    def cluster_port(self) -> int:
        """First of those that a Kubernetes of the lab's own needs beside its API's."""
        return self.port_base + 3 + self.nodes

    @property
    def fault_proxy_port(self) -> int:
        return self.port_base + port_count(self.nodes, self.kubernetes)

    @property
    def node_specs(self) -> tuple[model.NodeSpec, ...]:
        first = self.port_base + 3
        return tuple(
            model.NodeSpec(
                name=member.name,
                port=first + number,
                cpus=member.cpus,
                memory_mb=member.memory_mb,
                gpus=member.gpus,
            )
            for number, member in enumerate(self.members or self._own_members)
        )

    @property
    def _own_members(self) -> tuple[Member, ...]:
        return tuple(
            Member(name=f"n{number + 1}", cpus=self.cpus, memory_mb=self.memory_gb * 1024, gpus=self.gpus)
            for number in range(self.nodes)
        )

    @property
    def slurmds(self) -> int:
        """How many nodes have a slurmd: all, unless there are more than one machine should carry."""
        return min(self.nodes, PRETENDED_SLURMDS) if self.kubernetes == KWOK else self.nodes

    @property
    def foreign(self) -> bool:
        """Whether its Kubernetes is somebody else's."""
        return self.bridge and self.kubernetes not in (DEV, REAL, KWOK)


def port_count(nodes: int, kubernetes: str = DEV, *, fault_proxy: bool = False) -> int:
    """How many ports a lab with that many nodes needs."""
    own = layout.port_count(nodes) if kubernetes in (REAL, KWOK) else 0
    return 3 + nodes + own + int(fault_proxy)


def exists(place: paths.LabPaths) -> bool:
    """Whether there is a lab, sound or not, in this directory."""
    return place.spec.is_file()


def load(place: paths.LabPaths) -> LabSpec:
    """Read lab.json; one clear line when it is missing or broken."""
    try:
        return msgspec.json.decode(place.spec.read_bytes(), type=LabSpec)
    except FileNotFoundError:
        raise NoLab(place.directory) from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.LabError(
            f"{place.spec} cannot be read: {error}",
            hint="`penstock lab down --force` removes the lab without it (a user made for the lab stays).",
        ) from error


def save(place: paths.LabPaths, lab: LabSpec) -> None:
    """Write lab.json."""
    text = msgspec.json.format(msgspec.json.encode(lab), indent=2)
    files.write(place.spec, text + b"\n", mode=0o644)


class NoLab(errors.LabError):
    """There is no lab where one was looked for."""

    exit_code = 3

    def __init__(self, directory: Path) -> None:
        super().__init__(f"there is no lab in {directory}", hint="`penstock lab up` makes one.")
