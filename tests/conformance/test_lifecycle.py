"""A real cluster comes, can be used by another lab, is pretended, and goes without a trace."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from penstock_lab import processes, spec, testing
from penstock_lab.kubernetes import cgroups, externalcluster, mountcalls, registry, variants

NODES = ["n1", "n2", "n3", "n4"]


@pytest.fixture
def _real_only() -> None:
    if testing.kubernetes() != spec.REAL:
        pytest.skip("needs a cluster built here: make test-k8s")


def interface_of(lab: testing.RunningLab, job_id: str) -> Path:
    """The host's end of the way to the job's pod; other labs have theirs at the same time."""
    selector = f"penstock.dev/job-id={job_id}"
    argv = ("kubectl", "get", "pods", "-A", "-l", selector, "-o", "jsonpath={.items[0].status.podIP}")
    testing.until(lambda: lab.run(argv).stdout)  # the kubelet tells it after the container has begun
    words = lab.run(("ip", "-o", "route", "get", lab.run(argv).stdout)).stdout.split()
    return Path("/sys/class/net") / words[words.index("dev") + 1]


def traces(directory: Path, name: str) -> dict[str, list[str]]:
    """Whatever speaks of this lab on the machine."""
    everything = processes.snapshot()
    mine = [process for process in everything if any(f"{directory}/" in word for word in process.argv)]
    return {
        "processes": [" ".join(process.argv) for process in mine],
        "mounts": [point for point in mountcalls.mount_points() if point.startswith(f"{directory}")],
        "cgroups": [str(tree / name) for tree in cgroups.trees() if (tree / name).exists()],
        "files": [str(directory)] if directory.exists() else [],
    }


@pytest.mark.usefixtures("_real_only")
@pytest.mark.parametrize("violently", [False, True], ids=["in-order", "after-kill-9"])
def test_cluster_is_removed_completely(violently: bool) -> None:
    """With a job running in it: no process, container, mount, cgroup, interface or file stays."""
    forwarding = Path("/proc/sys/net/ipv4/ip_forward").read_text()
    with testing.temporary_lab("--nodes", "1") as lab:
        name = variants.cluster_of(lab.place, spec.load(lab.place)).cgroup
        output = lab.home / "long.out"
        job_id = lab.sbatch("#!/bin/sh\necho up; sleep 600\n", f"--output={output}")
        lab.wait_for(job_id, "RUNNING")
        deadline = time.monotonic() + 30
        while not (output.exists() and "up" in output.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        there = traces(lab.place.directory, name)
        assert all(there.values())
        interface = interface_of(lab, job_id)
        assert interface.exists()
        if violently:
            kill_everything(lab)
    left = traces(lab.place.directory, name)
    assert left == {"processes": [], "mounts": [], "cgroups": [], "files": []}
    testing.until(lambda: not interface.exists())  # the kernel takes a moment to end a network namespace
    others = [path for tree in cgroups.trees() for path in tree.glob("penstock-k8s-*")]
    assert others or Path("/proc/sys/net/ipv4/ip_forward").read_text() == forwarding


def kill_everything(lab: testing.RunningLab) -> None:
    """Every daemon of the lab at once, as when the machine is out of memory; containers live on."""
    for process in processes.snapshot():
        if str(lab.place.directory) in " ".join(process.argv) and "shim" not in process.name:
            processes.send(process.identity, signal.SIGKILL)


@pytest.mark.usefixtures("_real_only")
def test_an_image_is_pulled_from_the_sites_registry(lab: testing.RunningLab) -> None:
    """By the name that the site gives its registry, which no name server knows."""
    script = f"#!/bin/sh\n#K8S_IMAGE={registry.IMAGE}\ncat /etc/image; exit 3\n"
    job_id = lab.sbatch(script)
    assert lab.accounted(job_id) == ["FAILED", "3:0"]
    assert (lab.home / f"slurm-{job_id}.out").read_text() == "lab/tools\n"


@pytest.fixture
def kubeconfig(lab: testing.RunningLab, tmp_path: Path) -> Path:
    """The administrator's kubeconfig of a cluster that is somebody else's, all of whose nodes take pods."""
    path = tmp_path / "kubeconfig"
    path.write_bytes(lab.place.admin_kubeconfig.read_bytes())
    testing.until(lambda: [node.name for node in externalcluster.members(path)] == NODES)
    return path


@pytest.mark.usefixtures("_real_only")
def test_external_cluster_by_kubeconfig(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its nodes are Slurm's nodes, a job's output comes through the API, and its record is right."""
    monkeypatch.setenv("PENSTOCK_TEST_KUBERNETES", str(kubeconfig))
    with testing.temporary_lab() as guest:
        assert guest.run(("sinfo", "-h", "-N", "-p", "cpu", "-o", "%N")).stdout.split() == NODES
        job_id = guest.sbatch("#!/bin/sh\n#K8S_IMAGE=lab/host-userland:1\necho from afar; exit 7\n")
        assert guest.accounted(job_id) == ["FAILED", "7:0"]
        text = (guest.home / f"slurm-{job_id}.out").read_text()
        namespace = externalcluster.namespace_of(guest.place, spec.load(guest.place))
        assert namespace in guest.run(("kubectl", "get", "namespaces", "-o", "name")).stdout
    assert "from afar\n" in text


@pytest.mark.usefixtures("_real_only")
def test_kwok_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real control plane, two hundred simulated nodes, and jobs that succeed on them."""
    monkeypatch.setenv("PENSTOCK_TEST_KUBERNETES", spec.KWOK)
    with testing.temporary_lab("--nodes", "200") as lab:
        nodes = lab.run(("kubectl", "get", "nodes", "--no-headers")).stdout.splitlines()
        assert len(nodes) == 200
        deadline = time.monotonic() + 20
        while any(" Ready " not in line for line in nodes):
            assert time.monotonic() < deadline
            nodes = lab.run(("kubectl", "get", "nodes", "--no-headers")).stdout.splitlines()
            time.sleep(0.2)
        job_id = lab.sbatch("#!/bin/sh\nexit 3\n", "--gres=gpu:4")
        assert lab.accounted(job_id) == ["COMPLETED", "0:0"]
