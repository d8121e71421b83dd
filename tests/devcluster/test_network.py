"""Every pod has an address, a host name and an /etc/hosts of its own."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from penstock_lab.devcluster import podnetwork
from tests.devcluster import clusters as testing
from tests.devcluster.clusters import pod

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and uids need root")
HOLD = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done")
LISTEN = "import socket; s = socket.create_server((socket.gethostname(), 6000)); s.accept()[0].sendall(b'hi')"
CALL = "import socket; print(socket.create_connection(('n7', 6000), 5).recv(2).decode())"
SHARED = {"volumes": [{"name": "run", "emptyDir": {}}]}


def address(api: testing.Client, name: str, *phases: str) -> str:
    found: str = api.phase(name, *(phases or ("Running",)))["status"]["podIP"]
    return found


def test_addresses_are_on_loopback_and_unique(api: testing.Client) -> None:
    """A pod keeps its own from its first container to its end."""
    for name in ("p", "q"):
        api.create("pods", pod(name, *HOLD, terminationGracePeriodSeconds=1))
    first, second = address(api, "p"), address(api, "q")
    assert first != second
    assert first.startswith("127.")
    assert "127.0.0.1" not in (first, second)
    assert api.get("pods", "p")["status"]["podIPs"] == [{"ip": first}]


def test_no_two_pods_in_a_row_share_an_address(tmp_path: Path) -> None:
    """Far more than ever run at once, and no address of a whole network."""
    addresses = podnetwork.Addresses(tmp_path)
    given = [addresses.of({"spec": {}}) for _ in range(60_000)]
    assert len(set(given)) == len(given)
    assert not [one for one in given if one.endswith((".0", ".255"))]


@needs_root
def test_hosts_file_is_a_kubelets(api: testing.Client) -> None:
    """Root's, with the pod's name and its aliases; `hostname -i` prints one address."""
    script = "hostname; hostname -i; cat /etc/hosts; echo x >>/etc/hosts"
    aliases = [{"ip": "10.9.8.7", "hostnames": ["far", "away"]}]
    user = {"runAsUser": 1234}
    api.create("pods", pod("p", "sh", "-c", script, hostname="n7", hostAliases=aliases, securityContext=user))
    own = address(api, "p", "Failed")
    name, printed, header, *lines = api.log("p").splitlines()
    assert (name, printed, header) == ("n7", own, "# Kubernetes-managed hosts file.")
    assert {"127.0.0.1\tlocalhost", f"{own}\tn7", "10.9.8.7\tfar\taway"} <= set(lines)
    assert "Permission denied" in lines[-1]


@needs_root
def test_pods_meet_by_name(api: testing.Client) -> None:
    """One binds its own name, the other knows it from a file mounted over /etc/hosts."""
    server = pod("server", "python3", "-c", LISTEN, hostname="n7", terminationGracePeriodSeconds=1)
    api.create("pods", server)
    mount = {"name": "run", "mountPath": "/run-folder"}
    line = f"{address(api, 'server')} n7"
    init = {
        "name": "init",
        "image": "any",
        "command": ["sh", "-c", f"echo {line} >/run-folder/hosts"],
        "volumeMounts": [mount],
    }
    over = {"name": "run", "mountPath": "/etc/hosts", "subPath": "hosts"}
    container = {"volumeMounts": [mount, over]}
    client = pod("client", "python3", "-c", CALL, initContainers=[init], container=container, **SHARED)
    api.create("pods", client)
    api.phase("client", "Succeeded", "Failed")
    assert api.log("client") == "hi\n"


@needs_root
def test_address_is_known_in_an_init_container(api: testing.Client) -> None:
    """By a variable, before any container of the pod has run."""
    env = [{"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    init = {"name": "init", "image": "any", "command": ["sh", "-c", 'echo "$ADDRESS"'], "env": env}
    api.create("pods", pod("p", "true", initContainers=[init]))
    assert address(api, "p", "Succeeded") == api.log("p", container="init").strip()


@needs_root
def test_pod_with_the_nodes_network(api: testing.Client) -> None:
    """It has the node's address, name and hosts file."""
    script = "hostname; cat /etc/hosts"
    api.create("pods", pod("p", "sh", "-c", script, hostNetwork=True, nodeName="n2"))
    assert address(api, "p", "Succeeded") == "127.0.0.1"
    assert api.log("p") == f"{socket.gethostname()}\n{Path('/etc/hosts').read_text()}"


@pytest.mark.parametrize("spec", [{"nodeName": "n1", "nodeSelector": {"no": "such"}}])
def test_pod_that_was_refused_has_no_address(api: testing.Client, spec: dict[str, object]) -> None:
    api.create("pods", pod("p", "true", **spec))
    found = api.phase("p", "Failed")
    assert "podIP" not in found["status"], json.dumps(found["status"])
