"""Host names: every pod is called like its Slurm node, and in a gang every pod finds the others by name.

Without a Service and without DNS, before the script's first line.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e import clusters, labs, semantics

from penstock_lab import testing

Lab = testing.RunningLab
Json = semantics.Json
NODES = 3
SCRIPT = """\
#!/bin/sh
date +%s.%N >began
cat /etc/hosts >hosts
hostname >name
hostname -i >addresses
hostname -f >full
: >up
while [ ! -e go ]; do sleep 0.2; done
"""
SERVER = (
    "import socket; s = socket.create_server((socket.gethostname(), 6000)); "
    "print('up', flush=True); s.accept()[0].sendall(b'hello')"
)
CLIENT = "import socket, sys; print(socket.create_connection((sys.argv[1], 6000), 20).recv(5).decode())"
RESOLVE = "import socket, sys; print(*(socket.gethostbyname_ex(n)[2][0] for n in sys.argv[1:]))"


class Gang:
    """A job on several nodes that runs until it is told to end."""

    def __init__(self, lab: Lab, *options: str, script: str = SCRIPT, nodes: int = NODES) -> None:
        self.lab, self.cwd = lab, semantics.folder(lab)
        self.job_id = lab.sbatch(script, f"-N{nodes}", f"--chdir={self.cwd}", *options)

    def begun(self) -> Gang:
        semantics.wait_until((self.cwd / "up").exists, "the script runs")
        return self

    def read(self, name: str) -> str:
        return (self.cwd / name).read_text()

    @property
    def pods(self) -> list[Json]:
        """By rank."""
        found = semantics.pods(self.lab, self.job_id)
        return sorted(found, key=lambda pod: int(pod["metadata"]["labels"]["penstock.dev/rank"]))

    @property
    def addresses(self) -> dict[str, str]:
        """The pods' addresses by their Slurm nodes."""
        hosts = self.lab.run(("scontrol", "show", "hostnames", self.lab.job(self.job_id)["NodeList"]))
        pods = (pod["status"]["podIP"] for pod in self.pods)
        return dict(zip(hosts.stdout.split(), pods, strict=True))

    def end(self) -> semantics.Record:
        (self.cwd / "go").touch()
        return semantics.record(self.lab, self.job_id)


def inside(lab: Lab, pod: Json, *command: str) -> str:
    """Output of a command in the pod."""
    meta = pod["metadata"]
    argv = ("kubectl", "exec", "--namespace", meta["namespace"], meta["name"], "--container=job", "--")
    return lab.run((*argv, *command)).stdout


def lines(hosts: str) -> dict[str, list[str]]:
    """Names by address, without this host's own."""
    rows = [line.split() for line in hosts.splitlines() if line and not line.startswith("#")]
    return {row[0]: row[1:] for row in rows if row[0] not in ("127.0.0.1", "::1")}


@pytest.fixture(scope="module")
def gang(lab: Lab) -> Iterator[Gang]:
    running = Gang(lab)
    try:
        yield running.begun()
    finally:
        lab.run(("scancel", running.job_id))
        semantics.record(lab, running.job_id)


def test_every_pod_is_called_like_its_node(lab: Lab, gang: Gang) -> None:
    """And the script, too; `hostname -i` prints its one address."""
    nodes = list(gang.addresses)
    assert (gang.read("name"), gang.read("full")) == (f"{nodes[0]}\n", f"{nodes[0]}\n")
    assert gang.read("addresses").split() == [gang.addresses[nodes[0]]]
    for node, pod in zip(nodes, gang.pods, strict=True):
        assert inside(lab, pod, "hostname") == f"{node}\n"
        assert inside(lab, pod, "hostname", "-i").split() == [pod["status"]["podIP"]]
        assert pod["spec"]["nodeName"] == node


def test_all_names_resolve_in_all_pods_before_the_script_starts(lab: Lab, gang: Gang) -> None:
    """Each to one address; the last pod was told before the script's first line."""
    expected = gang.addresses
    assert len(set(expected.values())) == NODES
    assert lines(gang.read("hosts")) == {address: [node] for node, address in expected.items()}
    for pod in gang.pods:
        found = inside(lab, pod, "python3", "-c", RESOLVE, *expected)
        assert found.split() == list(expected.values())
        told = inside(lab, pod, "stat", "--format=%.9Y", "/penstock-run/named")
        assert float(told) < float(gang.read("began"))


def test_own_name_is_the_first(lab: Lab, gang: Gang) -> None:
    """A look-up by address finds it, too."""
    for node, pod in zip(gang.addresses, gang.pods, strict=True):
        assert next(iter(lines(inside(lab, pod, "cat", "/etc/hosts")).values())) == [node]


def test_pods_connect_by_name(lab: Lab, gang: Gang) -> None:
    """Every pod binds its host name, and the next one connects to it under that name, on the same port."""
    nodes, pods = list(gang.addresses), gang.pods
    for rank, node in enumerate(nodes):
        printed = gang.cwd / f"server-{node}"
        inside(lab, pods[rank], "sh", "-c", f'exec python3 -c "{SERVER}" >{printed} 2>&1 &')
        semantics.wait_for_text(printed, "up")
        caller = pods[(rank + 1) % NODES]
        assert inside(lab, caller, "python3", "-c", CLIENT, node) == "hello\n"


def test_pods_know_nothing_of_other_jobs(lab: Lab, gang: Gang) -> None:
    """A second gang on the same nodes has other addresses under the same names."""
    other = Gang(lab).begun()
    try:
        assert not set(other.addresses.values()) & set(gang.addresses.values())
        for pod in other.pods:
            hosts = lines(inside(lab, pod, "cat", "/etc/hosts"))
            assert hosts == {address: [node] for node, address in other.addresses.items()}
    finally:
        assert other.end() == semantics.Record("COMPLETED", "0:0")


def test_lone_pod_has_its_nodes_name(lab: Lab) -> None:
    """By the kubelet's own file: no init container, nothing to wait for."""
    lone = Gang(lab, nodes=1).begun()
    (pod,) = lone.pods
    try:
        node = lab.job(lone.job_id)["NodeList"]
        assert (lone.read("name"), lone.read("addresses").split()) == (f"{node}\n", [pod["status"]["podIP"]])
        assert "initContainers" not in pod["spec"]
        assert lone.read("hosts").startswith("# Kubernetes-managed")
    finally:
        assert lone.end() == semantics.Record("COMPLETED", "0:0")


def test_names_beside_a_mounted_folder(lab: Lab) -> None:
    """One init container looks for the folder and makes the file."""
    data = semantics.folder(lab)
    script = SCRIPT.replace("\n", f"\n#K8S_MOUNT={data}:/data\n", 1)
    both = Gang(lab, script=script, nodes=2).begun()
    try:
        assert all(inside(lab, pod, "ls", "-d", "/data") == "/data\n" for pod in both.pods)
        assert lines(both.read("hosts")) == {address: [node] for node, address in both.addresses.items()}
        assert [len(pod["spec"]["initContainers"]) for pod in both.pods] == [1, 1]
    finally:
        assert both.end() == semantics.Record("COMPLETED", "0:0")


def test_missing_folder_of_a_gang_fails_it_with_the_reason(lab: Lab) -> None:
    """No script has run."""
    missing = semantics.folder(lab) / "none"
    script = SCRIPT.replace("\n", f"\n#K8S_MOUNT={missing}:/data\n", 1)
    failing = Gang(lab, script=script, nodes=2)
    assert semantics.record(lab, failing.job_id).state == "FAILED"
    said = semantics.field(lab, failing.job_id, "Comment")
    assert "the job's owner sees no such folder on the node" in said
    assert not (failing.cwd / "began").exists()


def test_an_images_own_entrypoint_finds_the_names(lab: Lab) -> None:
    """It has no agent that could wait for them."""
    cwd = semantics.folder(lab)
    entrypoint = () if clusters.is_real() else ("sh",)  # the dev cluster's images have none
    words = (*entrypoint, "-c", f"cat /etc/hosts >{cwd}/hosts; hostname -i >{cwd}/addresses")
    row = semantics.Row(
        script="#!/bin/sh\n#K8S_COMMAND=@entrypoint\n", options=("-N2", f"--chdir={cwd}"), arguments=words
    )
    job_id = semantics.submit(lab, row, cwd=cwd)
    assert semantics.record(lab, job_id) == semantics.Record("COMPLETED", "0:0")
    hosts = lines((cwd / "hosts").read_text())
    assert len(hosts) == 2
    assert (cwd / "addresses").read_text().split() == [next(iter(hosts))]


def test_script_waits_for_the_last_pod(lab: Lab) -> None:
    """Rank 0 runs and knows nobody yet, while a kubelet stands still."""
    with clusters.standing_still(lab, "n3") as go_on:
        gang = Gang(lab, "--nodelist=n1,n2,n3")
        testing.until(
            lambda: [pod["status"]["phase"] for pod in gang.pods] == ["Running", "Running", "Pending"]
        )
        for pod in gang.pods[:2]:
            assert list(lines(inside(lab, pod, "cat", "/etc/hosts"))) == [pod["status"]["podIP"]]
        assert not (gang.cwd / "began").exists()
        go_on()
        gang.begun()
    assert gang.end() == semantics.Record("COMPLETED", "0:0")


def test_penstockd_killed_while_a_gang_starts(lab: Lab) -> None:
    """The next one tells the pods that were not told, and adds no line twice."""
    starting = Gang(lab)
    testing.until(lambda: len(starting.pods) == NODES)
    labs.kill(lab.place, "penstockd")
    testing.lab_command(lab.place, "up")
    starting.begun()
    labs.kill(lab.place, "penstockd")
    testing.lab_command(lab.place, "up")
    for pod in starting.pods:
        text = inside(lab, pod, "cat", "/etc/hosts")
        assert len(text.splitlines()) == 2 + NODES
        assert lines(text) == {address: [node] for node, address in starting.addresses.items()}
    assert starting.end() == semantics.Record("COMPLETED", "0:0")


def test_mode_trust_has_names_too() -> None:
    """kube-scheduler chooses the Kubernetes nodes; the names are Slurm's."""
    with testing.temporary_lab("--nodes", "2", "--mode", "trust") as lab:
        gang = Gang(lab, nodes=2).begun()
        assert lines(gang.read("hosts")) == {address: [node] for node, address in gang.addresses.items()}
        assert [inside(lab, pod, "hostname").strip() for pod in gang.pods] == list(gang.addresses)
        assert gang.end() == semantics.Record("COMPLETED", "0:0")


def test_pods_with_the_nodes_network() -> None:
    """A site's choice for a partition: the node's names and addresses, and nothing of Penstock's."""
    with testing.temporary_lab("--nodes", "2") as lab:
        settings = json.loads(lab.place.penstockd_conf.read_text())
        settings["pods"]["partitions"]["gpu"]["network"] = "host"
        lab.place.penstockd_conf.write_text(json.dumps(settings))
        lab.penstock("lab", "restart", "penstockd")
        gang = Gang(lab, nodes=2).begun()
        assert Path("/etc/hosts").read_text() in gang.read("hosts")
        assert all(pod["spec"]["hostNetwork"] and "initContainers" not in pod["spec"] for pod in gang.pods)
        assert [inside(lab, pod, "hostname").strip() for pod in gang.pods] == [socket.gethostname()] * 2
        assert gang.end() == semantics.Record("COMPLETED", "0:0")
        lab.check()
