"""Paths and ports of the lab's Kubernetes.

Ports follow the lab's own block. Each node's pod network is derived from its kubelet's port, so labs on one
machine never share an address.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from penstock.model import cluster as model
from penstock_lab.paths import Below

CONTROL_PORTS = 5
"""etcd for clients, etcd for peers, controller manager, scheduler, registry."""


CGROUP_PREFIX = "penstock-k8s-"


def port_count(nodes: int) -> int:
    """Number of ports that a cluster needs besides the API's."""
    return CONTROL_PORTS + nodes


def digest(directory: Path) -> str:
    """Suffix of the names of a lab's objects outside its directory, such as cgroups."""
    return hashlib.sha256(os.fsencode(directory)).hexdigest()[:8]


class _Port:
    """A port at an offset in the cluster's block."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def __get__(self, cluster: Cluster, _owner: type[Cluster]) -> int:
        return cluster.first_port + self.offset


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster's directory, programs, ports and nodes."""

    directory: Path
    """The lab's."""
    programs: Path
    """Directory of etcd, kube-apiserver and the other binaries."""
    pretender: Path = Path()
    """The kwok binary, if the nodes are simulated."""
    api_port: int
    first_port: int
    nodes: tuple[model.NodeSpec, ...]

    # -- ports ---------------------------------------------------------------------------------------------
    etcd_port = _Port(0)
    peer_port = _Port(1)
    controllers_port = _Port(2)
    scheduler_port = _Port(3)
    registry_port = _Port(4)

    # -- files ---------------------------------------------------------------------------------------------
    etc = Below("etc/kubernetes")
    """Keys, tokens, kubeconfigs and settings; readable by root only."""
    state = Below("kubernetes")
    audit_policy = Below("etc/kubernetes/audit.json")
    audit_log = Below("log/audit.log")
    """Every request of penstockd, to see which of its rights it uses."""
    stages = Below("etc/kubernetes/stages.yaml")
    """kwok's stages: how simulated nodes and pods behave."""

    @property
    def pretended(self) -> bool:
        return self.pretender != Path()

    kubectl = Below("bin/kubectl")
    etcd_data = Below("kubernetes/etcd")
    registry = Below("kubernetes/registry")
    registries = Below("etc/kubernetes/registries")
    """containerd's registry configuration, by host name."""
    authority = Below("etc/kubernetes-authority.crt")
    """The cluster's CA certificate."""
    tokens = Below("etc/kubernetes/tokens.csv")
    admin_kubeconfig = Below("etc/admin.kubeconfig")
    viewer_kubeconfig = Below("etc/viewer.kubeconfig")
    penstockd_kubeconfig = Below("etc/penstockd.kubeconfig")
    user_kubeconfigs = Below("etc/users")
    """One kubeconfig per user, readable by that user only."""

    def kubeconfig(self, name: str) -> Path:
        """The kubeconfig of a component or node."""
        return self.etc / f"{name}.kubeconfig"

    def key(self, name: str) -> Path:
        return self.etc / f"{name}.key"

    def certificate(self, name: str) -> Path:
        return self.etc / f"{name}.crt"

    # -- nodes ---------------------------------------------------------------------------------------------
    @property
    def cgroup(self) -> str:
        """The parent cgroup of all containers of the cluster. The port alone would not be unique: another lab
        may use it while this one is down.
        """
        return f"{CGROUP_PREFIX}{self.api_port}-{digest(self.directory)}"

    @property
    def machines(self) -> tuple[Machine, ...]:
        return tuple(Machine(cluster=self, number=number) for number in range(len(self.nodes)))


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A node: paths and port of its kubelet and containerd."""

    cluster: Cluster
    number: int

    @property
    def spec(self) -> model.NodeSpec:
        return self.cluster.nodes[self.number]

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def port(self) -> int:
        """The kubelet's."""
        return self.cluster.first_port + CONTROL_PORTS + self.number

    @property
    def pod_network(self) -> str:
        """254 addresses, unique to this node on this machine."""
        return f"10.{self.port >> 8}.{self.port & 255}.0/24"

    @property
    def cgroup(self) -> str:
        """One root per node: kubelets that share one kill each other's pods as orphans."""
        return f"{self.cluster.cgroup}/{self.name}"

    @property
    def directory(self) -> Path:
        return self.cluster.state / self.name

    socket = Below("c.sock")
    containerd_config = Below("containerd.toml")
    containerd_root = Below("containerd")
    containerd_state = Below("run")
    runc_root = Below("runc")
    cni = Below("cni")
    kubelet_config = Below("kubelet.json")
    kubelet_root = Below("kubelet")
    logs = Below("log")
    """The kubelet's /var/log."""
    view = Below("view")
    """The kubelet's view of the machine: see nodeview.py."""
