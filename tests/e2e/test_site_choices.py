"""A site that has chosen otherwise than the lab: GPUs under several resource names, namespaces by account.

Its file is applied to a lab of its own, and everything follows it.
"""

from __future__ import annotations

import json
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.render import yamltext
from penstock.site import yamlreader
from penstock_lab import testing

AMD, MIG = "amd.com/gpu", "nvidia.com/mig-1g.10gb"
TYPES = {"n1": ("mi300", AMD), "n2": ("1g.10gb", MIG)}
UNTYPED = ("n3", "n4")
COUNT = 4
WAIT = "#!/bin/sh\nwhile [ ! -e $1 ]; do sleep 0.2; done\n"


def patch_node(lab: testing.RunningLab, node: str, amounts: dict[str, str | None]) -> None:
    patch = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
    lab.run(("kubectl", "patch", "node", node, "--subresource=status", "--type=merge", "--patch", patch))


def typed_site(lab: testing.RunningLab) -> Path:
    """The lab's own site file, with a node group for each type of GPU."""
    document: dict[str, Any] = dict(yamlreader.read(lab.place.site_yaml.read_bytes()).data)
    whole = document["node_groups"]["workers"]
    first = whole["slurmd"]["first_port"]
    groups: dict[str, Any] = {}
    for number, node in enumerate((*TYPES, *UNTYPED)):
        gpus = {"gpus": COUNT, "gpu_type": TYPES[node][0]} if node in TYPES else {"gpus": COUNT}
        slurmd = {**whole["slurmd"], "first_port": first + number}
        groups[node] = {**whole, **gpus, "nodes": node, "slurmd": slurmd}
    document["node_groups"] = groups
    document["gpus"] = {
        name: {"resource": resource, "labels": {"gpu": name}} for name, resource in TYPES.values()
    }
    document["quota"] = {"gpus": 3 * COUNT, "pods": 100}
    document["kubernetes"]["namespace_pattern"] = "team-{account}"
    document["accounts"] = {"research": {"quota": {"pods": 50}}, "teaching": {}}
    document["penstockd"]["restart"] = [*document["slurm"]["restart"][:3], "penstockd", "--dir"]
    document["penstockd"]["restart"].append(str(lab.place.directory))
    for partition in document["partitions"].values():
        partition["nodes"] = list(groups)
    path = lab.place.etc / "typed.yaml"
    path.write_text(yamltext.document(document) + "\n")
    return path


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[testing.RunningLab, Path]]:
    """A lab to which that site file was applied."""
    with testing.temporary_lab() as lab:
        for node, (name, resource) in TYPES.items():
            patch_node(lab, node, {resource: str(COUNT), "nvidia.com/gpu": None})
            lab.run(("kubectl", "label", "node", node, f"gpu={name}"))
        path = typed_site(lab)
        lab.penstock("apply", "--yes", "--site", str(path))
        for node in (*TYPES, *UNTYPED):
            lab.penstock("lab", "restart", f"slurmd-{node}")
        lab.run(("scontrol", "update", "NodeName=n[1-4]", "State=RESUME"), check=False)
        testing.until(lambda: node_states(lab) == {"idle"}, seconds=60)
        yield lab, path


def node_states(lab: testing.RunningLab) -> set[str]:
    return set(lab.run(("sinfo", "--noheader", "--Node", "--format=%T")).stdout.split())


def requests(lab: testing.RunningLab, job: str) -> dict[str, str]:
    listed = lab.run(("kubectl", "get", "pods", "-A", "-l", f"penstock.dev/job-id={job}", "-o", "json"))
    (pod,) = json.loads(listed.stdout)["items"]
    found: dict[str, str] = pod["spec"]["containers"][0]["resources"]["requests"]
    return found


def gpus_of(amounts: dict[str, str]) -> dict[str, str]:
    return {name: count for name, count in amounts.items() if "/" in name}


def end(lab: testing.RunningLab, *jobs: str) -> None:
    for job in jobs:
        (lab.home / f"go-{job}").touch()
    lab.run(("scancel", *jobs), check=False)
    for job in jobs:
        lab.wait_for(job, "COMPLETED", "CANCELLED", "FAILED")


def test_each_type_is_asked_for_by_its_own_name(site: tuple[testing.RunningLab, Path]) -> None:
    """By type, by any, on the right nodes, with the checker content while they run."""
    lab, _ = site
    script = WAIT.replace("$1", "stay")
    jobs = {
        lab.sbatch(script, "--gres=gpu:mi300:2", "--output=/dev/null"): {AMD: "2"},
        lab.sbatch(script, "--gres=gpu:1g.10gb:3", "--output=/dev/null"): {MIG: "3"},
        lab.sbatch(script, "--gpus-per-node=1", "--nodelist=n3", "--output=/dev/null"): {
            "nvidia.com/gpu": "1"
        },
        lab.sbatch(script, "--gpus-per-node=1", "--nodelist=n1", "--output=/dev/null"): {AMD: "1"},
    }
    for job, wanted in jobs.items():
        lab.wait_for(job, "RUNNING")
        wait_for_pod(lab, job)
        assert gpus_of(requests(lab, job)) == wanted
    lab.check()
    seen = {node["name"]: node for node in json.loads(nodes(lab, site[1]))["nodes"]}
    assert [seen[name]["requested"]["gpus"] for name in ("n1", "n2", "n3", "n4")] == [3, 3, 1, 0]
    assert [seen[name]["free"]["gpus"] for name in ("n1", "n2", "n3", "n4")] == [1, 1, 3, 4]
    assert all(node["disagreements"] == [] for node in seen.values())
    end(lab, *jobs)
    lab.check()


def pods_of(lab: testing.RunningLab, job: str) -> list[Any]:
    listed = lab.run(("kubectl", "get", "pods", "-A", "-l", f"penstock.dev/job-id={job}", "-o", "json"))
    found: list[Any] = json.loads(listed.stdout)["items"]
    return found


def wait_for_pod(lab: testing.RunningLab, job: str) -> None:
    testing.until(lambda: pods_of(lab, job))


def nodes(lab: testing.RunningLab, path: Path) -> str:
    return lab.penstock("nodes", "--format", "json", "--site", str(path)).stdout


def test_a_guest_on_one_type_holds_up_that_type_alone(site: tuple[testing.RunningLab, Path]) -> None:
    """The refusal names the resource and who has it."""
    lab, _ = site
    container = {
        "name": "job",
        "image": "lab/host-userland:1",
        "command": ["/bin/sleep", "600"],
        "resources": {"requests": {AMD: "3"}, "limits": {AMD: "3"}},
    }
    guest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "guest", "namespace": "default"},
        "spec": {"nodeName": "n1", "containers": [container], "terminationGracePeriodSeconds": 0},
    }
    lab.run(("kubectl", "create", "-f", "-"), stdin=json.dumps(guest))
    try:
        held = lab.sbatch("#!/bin/sh\n", "--gres=gpu:mi300:2", "--output=/dev/null")
        free = lab.sbatch("#!/bin/sh\n", "--gres=gpu:1g.10gb:4", "--output=/dev/null")
        assert lab.wait_for(free, "COMPLETED")["ExitCode"] == "0:0"
        words = "waits for amd.com/gpu on n1: 1 free of 2 needed, held by default/guest"
        testing.until(lambda: words in lab.run(("scontrol", "show", "job", held)).stdout)
    finally:
        lab.run(("kubectl", "delete", "pod", "guest", "--namespace=default", "--now"))
    assert lab.wait_for(held, "COMPLETED", timeout=90)["ExitCode"] == "0:0"


def test_quota_and_doctor_know_both_names(site: tuple[testing.RunningLab, Path]) -> None:
    """The namespace's quota counts each; a device plugin that is away is named."""
    lab, path = site
    assert lab.penstock("doctor", "--site", str(path)).returncode == 0
    job = lab.sbatch("#!/bin/sh\n", "--gres=gpu:mi300:1", "--output=/dev/null")
    lab.wait_for(job, "COMPLETED")
    settings = json.loads(lab.place.penstockd_conf.read_text())
    hard = settings["pods"]["namespace_quota"]
    names = (AMD, MIG, "nvidia.com/gpu")
    assert {name: hard[f"requests.{name}"] for name in names} == dict.fromkeys(names, "12")
    patch_node(lab, "n1", {AMD: "1"})
    try:
        words = ("doctor", "--only", "node-gpus", "--format", "json", "--site", str(path))
        told = lab.penstock(*words, check=False)
        assert "4 GPUs in Slurm, 1 amd.com/gpu in Kubernetes" in told.stdout
        assert told.returncode == 3
    finally:
        patch_node(lab, "n1", {AMD: str(COUNT)})


SECOND = "games"
"""A user that every Debian has."""


def where(lab: testing.RunningLab, job: str) -> str:
    (pod,) = pods_of(lab, job)
    return str(pod["metadata"]["namespace"])


def test_users_of_an_account_share_a_namespace(site: tuple[testing.RunningLab, Path]) -> None:
    """Two users, one namespace, each pod with its owner's uid; another account is elsewhere."""
    lab, _ = site
    testing.lab_command(lab.place, "adduser", SECOND)
    lab.run(("sacctmgr", "--immediate", "add", "user", lab.user, "account=teaching"))
    script = WAIT.replace("$1", "stay")
    mine = lab.sbatch(script, "--output=/dev/null")
    theirs = lab.sbatch(script, "--output=/dev/null", user=SECOND)
    other = lab.sbatch(script, "--output=/dev/null", "--account=teaching")
    for job in (mine, theirs, other):
        wait_for_pod(lab, job)
    assert [where(lab, job) for job in (mine, theirs, other)] == [
        "team-research",
        "team-research",
        "team-teaching",
    ]
    uids = {pods_of(lab, job)[0]["spec"]["securityContext"]["runAsUser"] for job in (mine, theirs)}
    assert uids == {pwd.getpwnam(lab.user).pw_uid, pwd.getpwnam(SECOND).pw_uid}
    for name, pods in (("team-research", "50"), ("team-teaching", "100")):
        quota = lab.run(("kubectl", "get", "resourcequota", "penstock", "-n", name, "-o", "json")).stdout
        assert json.loads(quota)["spec"]["hard"]["pods"] == pods
        lab.run(("kubectl", "get", "networkpolicy", "penstock", "-n", name))
    lab.check()
    end(lab, mine, theirs, other)


def test_an_account_without_a_namespace_fails_its_jobs_in_words(
    site: tuple[testing.RunningLab, Path],
) -> None:
    """The job ends at once with the reason in its comment, and the node is free again."""
    lab, _ = site
    lab.run(("sacctmgr", "--immediate", "add", "account", "under_score"))
    lab.run(("sacctmgr", "--immediate", "add", "user", lab.user, "account=under_score"))
    job = lab.sbatch("#!/bin/sh\n", "--account=under_score", "--output=refused.out")
    lab.wait_for(job, "FAILED")
    words = (
        "account 'under_score' would have the namespace 'team-under_score', "
        "which is not a valid name in Kubernetes"
    )
    assert words in (lab.home / "refused.out").read_text()
    testing.until(lambda: not lab.run(("squeue", "--noheader")).stdout)
    assert node_states(lab) == {"idle"}
