"""Where the cluster's parts are: no two share a port, a path or a network."""

from __future__ import annotations

import dataclasses
import ipaddress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.model import cluster as model
from penstock_lab import files
from penstock_lab.kubernetes import controlplane, labcluster, layout, machines


def cluster(nodes: int = 2, *, api_port: int = 26002, first_port: int = 26010) -> layout.Cluster:
    """A cluster that nobody starts."""
    return layout.Cluster(
        directory=Path("/lab"),
        programs=Path("/programs"),
        api_port=api_port,
        first_port=first_port,
        nodes=tuple(
            model.NodeSpec(name=f"n{number + 1}", port=1, cpus=8, memory_mb=32768, gpus=4)
            for number in range(nodes)
        ),
    )


@given(st.integers(1, 50), st.integers(20000, 31000))
def test_ports_are_exactly_those_that_were_counted(nodes: int, first: int) -> None:
    """The lab reserves port_count ports, and each has one owner."""
    made = cluster(nodes, first_port=first)
    own = [made.etcd_port, made.peer_port, made.controllers_port, made.scheduler_port, made.registry_port]
    used = [*own, *(machine.port for machine in made.machines)]
    assert sorted(used) == list(range(first, first + layout.port_count(nodes)))


@given(st.lists(st.integers(1024, 65535), min_size=2, max_size=20, unique=True))
def test_nodes_with_other_ports_have_other_networks(ports: list[int]) -> None:
    """Networks are private, and never overlap on one machine, whatever labs there are."""
    networks = []
    for port in ports:
        machine = cluster(1, first_port=port - layout.CONTROL_PORTS).machines[0]
        networks.append(ipaddress.IPv4Network(machine.pod_network))
    assert all(network.subnet_of(ipaddress.IPv4Network("10.0.0.0/8")) for network in networks)
    assert len(set(networks)) == len(ports)


def test_labs_with_the_same_ports_have_other_cgroups() -> None:
    """One that is down keeps its ports; another that took them must not be killed with what is left of it."""
    made = cluster()
    other = dataclasses.replace(made, directory=Path("/lab2"))
    assert made.cgroup == cluster().cgroup != other.cgroup
    assert made.cgroup.startswith(layout.CGROUP_PREFIX)


def test_everything_of_a_node_is_below_its_own_directory() -> None:
    """Two kubelets or containerds must not meet in a file."""
    first, second = cluster().machines
    for name in (
        "socket",
        "containerd_root",
        "containerd_state",
        "runc_root",
        "cni",
        "kubelet_root",
        "view",
        "logs",
    ):
        mine, others = getattr(first, name), getattr(second, name)
        assert mine != others
        assert mine.is_relative_to(first.directory)
    assert first.cgroup != second.cgroup


def test_unix_sockets_are_short_enough() -> None:
    """A lab's directory may have 64 bytes, a socket's path 107."""
    deep = cluster()
    longest = max(len(str(machine.socket)) for machine in deep.machines)
    assert longest - len("/lab") + 64 < 107


def test_steps_wait_only_for_what_there_is() -> None:
    """Every name that something waits for is a step, a component, or one of the lab's own."""
    made = cluster()
    steps = labcluster.all_steps(
        made, penstockd_owner=files.ROOT, user="root", namespace_pattern="user-{user}"
    )
    parts = labcluster.all_components(made)
    names = {step.name for step in steps} | {part.name for part in parts}
    waits = [step.after for step in steps] + [part.after for part in parts] + [labcluster.READY_AFTER]
    awaited = {name for after in waits for name in after}
    assert awaited <= names


def test_components_can_be_stopped_in_reverse_order() -> None:
    """etcd is first and so stopped last: an API server without it holds its port for a minute."""
    names = [part.name for part in labcluster.all_components(cluster(1))]
    assert names == [
        "etcd",
        "apiserver",
        "controllers",
        "scheduler",
        "registry",
        "containerd-n1",
        "kubelet-n1",
    ]


def test_every_part_listens_on_loopback_only() -> None:
    """No option names another address."""
    text = " ".join(word for part in controlplane.all_components(cluster()) for word in part.argv)
    assert "0.0.0.0" not in text  # noqa: S104 - the very thing that must not be there
    assert "--bind-address=127.0.0.1" in text
    assert machines.render_kubelet(cluster().machines[0])["address"] == "127.0.0.1"


def test_etcd_and_kubelets_want_to_know_who_asks() -> None:
    """Anybody on the machine can reach loopback."""
    etcd = controlplane.all_components(cluster())[0]
    assert {"--client-cert-auth=true", "--peer-client-cert-auth=true"} <= set(etcd.argv)
    config = machines.render_kubelet(cluster().machines[0])
    assert config["authentication"]["anonymous"] == {"enabled": False}
    assert config["authorization"] == {"mode": "Webhook"}
    assert config["readOnlyPort"] == 0
