"""A node: its containerd and kubelet as components, and their configuration files.

Each node has its own containerd, with its own root, state and runc directory, and its own kubelet, with its
own cgroup root, pod network and view of the machine (nodeview). Only cgroups and the network interfaces of
running pods are outside the lab's directory.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from penstock_lab import component, files, health, ports
from penstock_lab.kubernetes import (
    api,
    cgroups,
    controlplane,
    layout,
    localimages,
    mountcalls,
    nodeview,
    stores,
)

IMAGES = "images"
CNI_PROGRAMS = "/usr/lib/cni"
MAX_PODS = 250
UNUSED_PLUGINS = (
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.tracing.processor.v1.otlp",
)
"""Plugins that would log at length that their requirements are missing."""


def containerd_name(machine: layout.Machine) -> str:
    return f"containerd-{machine.name}"


def kubelet_name(machine: layout.Machine) -> str:
    return f"kubelet-{machine.name}"


def all_components(cluster: layout.Cluster) -> tuple[component.Component, ...]:
    """All containerds, then all kubelets."""
    containerds = (_containerd(machine) for machine in cluster.machines)
    return (*containerds, *(_kubelet(machine) for machine in cluster.machines))


def _containerd(machine: layout.Machine) -> component.Component:
    return component.Component(
        name=containerd_name(machine),
        after=(controlplane.FILES,),
        argv=("containerd", "--config", str(machine.containerd_config)),
        check=lambda: health.unix_socket(machine.socket),
    )


def _kubelet(machine: layout.Machine) -> component.Component:
    options = {
        "config": machine.kubelet_config,
        "kubeconfig": machine.cluster.kubeconfig(machine.name),
        "hostname-override": machine.name,
        "root-dir": machine.kubelet_root,
        "cert-dir": machine.directory / "pki",
        "cloud-provider": "external",
    }
    command = (str(machine.cluster.programs / "kubelet"), *controlplane.flags(options))
    return component.Component(
        name=kubelet_name(machine),
        after=(controlplane.APISERVER, IMAGES, containerd_name(machine)),
        argv=(sys.executable, "-m", nodeview.__name__, str(machine.view), *command),
        environment=component.python_environment(),
        port=machine.port,
        check=lambda: (
            health.listens(machine.port)
            or api.node_complaint(machine.cluster.viewer_kubeconfig, machine.name)
        ),
    )


def prepare(cluster: layout.Cluster) -> str:
    """Make the files, directories, cgroups and mounts for containerd and kubelet."""
    nodeview.DEVICE_PLUGINS.mkdir(exist_ok=True)
    snapshotter, store = stores.snapshotter(cluster.state), stores.of(cluster)
    for machine in cluster.machines:
        _prepare_machine(machine, snapshotter)
        stores.fill(store, machine.containerd_root)
    return f"{len(cluster.machines)} nodes, {snapshotter}"


def _prepare_machine(machine: layout.Machine, snapshotter: str) -> None:
    for path in (machine.directory, machine.cni, machine.kubelet_root, machine.logs, machine.runc_root):
        files.directory(path, mode=0o700)
    files.write(machine.containerd_config, render_containerd(machine, snapshotter))
    files.write(machine.cni / "10-pods.conflist", _json(render_network(machine)))
    files.write(machine.kubelet_config, _json(render_kubelet(machine)))
    nodeview.prepare(machine.view, cpus=machine.spec.cpus, memory_mb=machine.spec.memory_mb)
    cgroups.make(machine.cgroup)
    mountcalls.share(machine.kubelet_root)


def render_containerd(machine: layout.Machine, snapshotter: str) -> str:
    return f"""\
version = 2
root = "{machine.containerd_root}"
state = "{machine.containerd_state}"
disabled_plugins = [{", ".join(f'"{name}"' for name in UNUSED_PLUGINS)}]

[grpc]
address = "{machine.socket}"

[plugins."io.containerd.internal.v1.opt"]
path = "{machine.directory}/opt"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{localimages.PAUSE}"
restrict_oom_score_adj = true
disable_apparmor = true
netns_mounts_under_state_dir = true
stream_server_address = "{ports.LOOPBACK}"
stream_server_port = "0"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = "{machine.runc_root}"
SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PROGRAMS}"
conf_dir = "{machine.cni}"

[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{machine.cluster.registries}"
"""


def render_network(machine: layout.Machine) -> dict[str, Any]:
    """The CNI configuration: a veth pair for each pod; the host routes between them."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": machine.pod_network}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(machine.directory / "addresses"),
    }
    return {
        "cniVersion": "0.4.0",
        "name": f"penstock-{machine.name}",
        "plugins": [{"type": "ptp", "mtu": 1500, "ipam": addresses}],
    }


def render_kubelet(machine: layout.Machine) -> dict[str, Any]:
    """A KubeletConfiguration for one of several kubelets on a shared host."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ports.LOOPBACK,
        "port": machine.port,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(machine.cluster.authority)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{machine.socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{machine.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "maxPods": MAX_PODS,
        "resolvConf": "",
        "podLogsDir": str(machine.logs),
        "volumePluginDir": str(machine.directory / "volume-plugins"),
        "nodeStatusUpdateFrequency": "5s",
        "featureGates": {"ReloadKubeletServerCertificateFile": False},
    }


def import_images(cluster: layout.Cluster) -> str:
    """Import the userland with the host's current users into every containerd."""
    store, kind = stores.of(cluster), stores.snapshotter(cluster.state)
    for machine in cluster.machines:
        userland = store.userland(whole=not stores.has_lower_layer(store, machine.containerd_root))
        stores.load(machine.socket, userland, localimages.USERLAND, kind=kind, scratch=machine.directory)
    return "pause, userland"


def _json(content: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
