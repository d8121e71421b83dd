"""lab.json: a lab's definition, written before anything else is made and removed last.

A directory without it is not a lab, and is never touched.
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
"""Slurm knows the other nodes of a simulated cluster, but they are down."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A node of an external cluster."""

    name: str
    cpus: int
    memory_mb: int
    gpus: int


class LabSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a lab; everything else is derived from them."""

    name: str
    port_base: int
    user: str
    user_created: bool
    nodes: int = DEFAULT_NODES
    cpus: int = 8
    memory_gb: int = 32
    gpus: int = 4
    bridge: bool = True
    """False: a plain Slurm without cluster, penstockd and hooks, for tests of the lab itself."""
    kubernetes: str = DEV
    """dev, real, kwok, or the path of a kubeconfig."""
    kubernetes_version: str = ""
    """Minor version, such as 1.35, for a Kubernetes built here; empty for the newest."""
    members: tuple[Member, ...] = ()
    """The nodes of an external cluster."""
    programs: str = ""
    """Directory of the binaries of the lab's own Kubernetes."""
    pretender: str = ""
    """The kwok binary, if nodes are simulated."""
    slurm: str = ""
    """Release, such as 24.11; empty for the installed one."""
    slurm_programs: str = ""
    """Directory of that release, if it is not the installed one."""
    mode: str = "check"
    """Mode of the bridged partitions: check or trust."""
    fault_proxy: bool = False
    """Whether penstockd reaches the API through the fault proxy."""
    complete: bool = False
    """Whether the lab was up once; until then, a failure removes everything."""
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
        """First of the ports that the lab's own Kubernetes needs besides the API's."""
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
        """Number of nodes with a slurmd: all, except in a large simulated cluster."""
        return min(self.nodes, PRETENDED_SLURMDS) if self.kubernetes == KWOK else self.nodes

    @property
    def foreign(self) -> bool:
        """Whether its Kubernetes is an external cluster."""
        return self.bridge and self.kubernetes not in (DEV, REAL, KWOK)


def port_count(nodes: int, kubernetes: str = DEV, *, fault_proxy: bool = False) -> int:
    own = layout.port_count(nodes) if kubernetes in (REAL, KWOK) else 0
    return 3 + nodes + own + int(fault_proxy)


def exists(place: paths.LabPaths) -> bool:
    """Whether there is a lab in this directory, intact or not."""
    return place.spec.is_file()


def load(place: paths.LabPaths) -> LabSpec:
    """Read lab.json; raises NoLab or LabError."""
    try:
        return msgspec.json.decode(place.spec.read_bytes(), type=LabSpec)
    except FileNotFoundError:
        raise NoLab(place.directory) from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.LabError(
            f"{place.spec} cannot be read: {error}",
            hint="`penstock lab down --force` removes the lab anyway (but not a user made for it).",
        ) from error


def save(place: paths.LabPaths, lab: LabSpec) -> None:
    text = msgspec.json.format(msgspec.json.encode(lab), indent=2)
    files.write(place.spec, text + b"\n", mode=0o644)


class NoLab(errors.LabError):
    exit_code = 3

    def __init__(self, directory: Path) -> None:
        super().__init__(f"there is no lab in {directory}", hint="`penstock lab up` makes one.")
