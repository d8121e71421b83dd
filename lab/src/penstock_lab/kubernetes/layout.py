"""Where everything of the cluster is and which ports it has: one class knows, nobody else joins names.

Ports follow the lab's own block. A pod network of its own for each node follows from the kubelet's port, so
that several labs on one machine never share an address.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from penstock.model import cluster as model

CONTROL_PORTS = 5
"""etcd for clients, etcd for peers, controller manager, scheduler, registry."""


CGROUP_PREFIX = "penstock-k8s-"


def port_count(nodes: int) -> int:
    """How many ports a cluster with that many nodes needs beside its API's."""
    return CONTROL_PORTS + nodes


def digest(directory: Path) -> str:
    """What the names of things outside of a lab's directory end in, so that they are known as its own."""
    return hashlib.sha256(os.fsencode(directory)).hexdigest()[:8]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster to be: its directory, programs, ports and nodes."""

    directory: Path
    """The lab's."""
    programs: Path
    """Where etcd, kube-apiserver and the others were built."""
    pretender: Path = Path()
    """kwok, if nodes are only to seem to be there."""
    api_port: int
    first_port: int
    nodes: tuple[model.NodeSpec, ...]

    # -- ports -----------------------------------------------------------------------------------------------
    @property
    def etcd_port(self) -> int:
        return self.first_port

    @property
    def peer_port(self) -> int:
        return self.first_port + 1

    @property
    def controllers_port(self) -> int:
        return self.first_port + 2

    @property
    def scheduler_port(self) -> int:
        return self.first_port + 3

    @property
    def registry_port(self) -> int:
        return self.first_port + 4

    # -- files -----------------------------------------------------------------------------------------------
    @property
    def etc(self) -> Path:
        """Keys, tokens, kubeconfigs and settings: root's alone."""
        return self.directory / "etc" / "kubernetes"

    @property
    def state(self) -> Path:
        return self.directory / "kubernetes"

    @property
    def audit_policy(self) -> Path:
        return self.etc / "audit.json"

    @property
    def audit_log(self) -> Path:
        """Every request of penstockd, for those who ask what it does with its rights."""
        return self.directory / "log" / "audit.log"

    @property
    def stages(self) -> Path:
        """How pretended nodes and pods behave."""
        return self.etc / "stages.yaml"

    @property
    def pretended(self) -> bool:
        return self.pretender != Path()

    @property
    def kubectl(self) -> Path:
        return self.directory / "bin" / "kubectl"

    @property
    def etcd_data(self) -> Path:
        return self.state / "etcd"

    @property
    def registry(self) -> Path:
        return self.state / "registry"

    @property
    def registries(self) -> Path:
        """Where containerds look up what the name of a registry means."""
        return self.etc / "registries"

    @property
    def authority(self) -> Path:
        """The certificate by which everybody knows the API server."""
        return self.directory / "etc" / "kubernetes-authority.crt"

    @property
    def tokens(self) -> Path:
        return self.etc / "tokens.csv"

    @property
    def admin_kubeconfig(self) -> Path:
        return self.directory / "etc" / "admin.kubeconfig"

    @property
    def viewer_kubeconfig(self) -> Path:
        return self.directory / "etc" / "viewer.kubeconfig"

    @property
    def penstockd_kubeconfig(self) -> Path:
        return self.directory / "etc" / "penstockd.kubeconfig"

    @property
    def user_kubeconfigs(self) -> Path:
        """One for each user, readable by him alone."""
        return self.directory / "etc" / "users"

    def kubeconfig(self, name: str) -> Path:
        """The kubeconfig of one of the cluster's own parts."""
        return self.etc / f"{name}.kubeconfig"

    def key(self, name: str) -> Path:
        return self.etc / f"{name}.key"

    def certificate(self, name: str) -> Path:
        return self.etc / f"{name}.crt"

    # -- nodes -----------------------------------------------------------------------------------------------
    @property
    def cgroup(self) -> str:
        """The cgroup that holds every container of the cluster, and nothing else: ports alone are another
        lab's, too, when this one does not run at the moment.
        """
        return f"{CGROUP_PREFIX}{self.api_port}-{digest(self.directory)}"

    @property
    def machines(self) -> tuple[Machine, ...]:
        return tuple(Machine(cluster=self, number=number) for number in range(len(self.nodes)))


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One node: the paths and the port of its kubelet and containerd."""

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
        """254 addresses of this node alone, on this machine."""
        return f"10.{self.port >> 8}.{self.port & 255}.0/24"

    @property
    def cgroup(self) -> str:
        """A root of its own: kubelets that share one end each other's pods as orphans."""
        return f"{self.cluster.cgroup}/{self.name}"

    @property
    def directory(self) -> Path:
        return self.cluster.state / self.name

    @property
    def socket(self) -> Path:
        return self.directory / "c.sock"

    @property
    def containerd_config(self) -> Path:
        return self.directory / "containerd.toml"

    @property
    def containerd_root(self) -> Path:
        return self.directory / "containerd"

    @property
    def containerd_state(self) -> Path:
        return self.directory / "run"

    @property
    def runc_root(self) -> Path:
        return self.directory / "runc"

    @property
    def cni(self) -> Path:
        return self.directory / "cni"

    @property
    def kubelet_config(self) -> Path:
        return self.directory / "kubelet.json"

    @property
    def kubelet_root(self) -> Path:
        return self.directory / "kubelet"

    @property
    def logs(self) -> Path:
        """What the kubelet takes for /var/log."""
        return self.directory / "log"

    @property
    def view(self) -> Path:
        """The machine as the kubelet sees it: see nodeview."""
        return self.directory / "view"
