"""Drafts of site files, and accounts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from tests.install import sites
from tests.unit import fakes

from penstock.install import accounts, draft
from penstock.model import nodes, resources
from penstock.site import loader, nodegroups
from penstock.slurm import associations, nodetexts

NODE_LINE = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=8  CPUAlloc=2 CPUTot=8 CPULoad=0.10 AvailableFeatures=(null) "
    "Gres=gpu:a100:4(S:0) NodeAddr=127.0.0.1 NodeHostName=localhost Port=17001 OS=Linux 6.1 #1 SMP "
    "RealMemory=32768 AllocMem=1000 State=MIXED+DRAIN Partitions=gpu CfgTRES=cpu=8,mem=32G,gres/gpu=4 "
    "AllocTRES=cpu=2,mem=1000M,gres/gpu=1 Reason=fan is broken [root@2026-01-01T00:00:00]"
)


def node(name: str, **more: int) -> nodes.Node:
    return nodes.Node(name=name, state="IDLE", amount=fakes.amount(cpus=8, gib=32, gpus=more.get("gpus", 0)))


def member(name: str, *, cpus: int = 8, host: str = "") -> nodegroups.Member:
    amount = resources.Amount(millicpus=cpus * 1000, memory=32 * 2**30, gpus=4)
    return nodegroups.Member(name=name, labels={"kubernetes.io/hostname": host or name}, allocatable=amount)


def seen(nodes: list[str], members: list[nodegroups.Member]) -> draft.Seen:
    return draft.Seen(
        settings={
            "ClusterName": "My_Hall",
            "SLURM_CONF": "/etc/slurm/slurm.conf",
            "SlurmUser": "slurm(64030)",
            "AuthInfo": "socket=/run/m.sock,cred_expire=60",
            "KillWait": "45 sec",
            "MaxArraySize": "1001",
        },
        nodes=[node(name) for name in nodes],
        partitions=["k8s"],
        members=members,
        host="head",
    )


def test_nodes_on_both_sides_become_a_group() -> None:
    """What does not match is reported, and the new partition gets an unused name."""
    made = draft.draft(seen(["n1", "n2", "old"], [member("n1"), member("n2"), member("k9")]), draft.Wishes())
    site = loader.loads(made.text.encode())
    assert site.node_groups["nodes1"].nodes == "n1,n2"
    assert (made.matched, made.only_slurm, made.only_kubernetes) == (("n1", "n2"), ("old",), ("k9",))
    assert list(site.partitions) == ["k8s2"]
    assert site.cluster == "my-hall"
    assert site.slurm.munge_socket == "/run/m.sock"
    assert site.timeouts.kill_wait == 45


def test_gpu_resource_name_is_drafted() -> None:
    """If nodes advertise another than the default, and only one."""
    amd = resources.Amount(millicpus=8000, memory=32 * 2**30, devices=(("amd.com/gpu", 4),))
    typed = [
        dataclasses.replace(node(name, gpus=4), gpu_type=kind, gpus_by_type=((kind, 4),))
        for name, kind in (("n1", "mi300"), ("n2", "a100"))
    ]
    members = [dataclasses.replace(member("n1"), allocatable=amd), member("n2")]
    made = draft.draft(dataclasses.replace(seen([], members), nodes=typed), draft.Wishes())
    found = {name: gpu.resource for name, gpu in loader.loads(made.text.encode()).gpus.items()}
    assert found == {"mi300": "amd.com/gpu", "a100": "nvidia.com/gpu"}
    assert not any("claims" in remark for remark in made.remarks)


def test_gpus_missing_in_gres_are_reported() -> None:
    """Once for equal nodes, whatever the resource name; a network card is not a GPU."""
    card = (("nvidia.com/mig-1g.10gb", 2), ("rdma/hca", 8))
    other = resources.Amount(millicpus=8000, memory=32 * 2**30, devices=card)
    nodes = [node("n1"), node("n2"), node("n3", gpus=4), node("n4", gpus=1)]
    members = [*map(member, ("n1", "n2", "n3")), dataclasses.replace(member("n4"), allocatable=other)]
    made = draft.draft(dataclasses.replace(seen([], members), nodes=nodes), draft.Wishes())
    found = [remark.partition(";")[0] for remark in made.remarks if "Gres" in remark]
    assert found == [
        "n1, n2: Kubernetes has 4 GPUs, Slurm's Gres none",
        "n4: Kubernetes has 2 GPUs, Slurm's Gres 1",
    ]


def test_without_common_nodes_virtual_nodes_are_drafted() -> None:
    """Their slurmds run on this host."""
    made = draft.draft(seen(["login"], [member("k1"), member("k2")]), draft.Wishes(nas="/nas", image="a:1"))
    group = loader.loads(made.text.encode()).node_groups["kubernetes"]
    assert (group.nodes, group.size) == ("k1,k2", "kubernetes")
    assert group.slurmd is not None
    assert group.slurmd.host == "head"
    assert made.remarks == ()


def test_differing_names_and_sizes_are_reported() -> None:
    found = [member("n1", cpus=4), member("ip-10-0-0-2", host="n2")]
    made = draft.draft(seen(["n1", "n2"], found), draft.Wishes(nas="/nas", image="a:1"))
    assert made.renamed == (("n2", "ip-10-0-0-2"),)
    assert made.remarks[0] == "n1: cpu is 8 in Slurm, 4 allocatable in Kubernetes"


def test_node_name_with_a_domain_in_kubernetes_is_reported() -> None:
    """On most clusters the hostname label has the domain, too."""
    made = draft.draft(seen(["p1", "p2"], [member("p1.example.org"), member("p2")]), draft.Wishes())
    assert made.renamed == (("p1", "p1.example.org"),)
    assert made.matched == ("p2",)


def test_node_is_parsed_from_scontrol() -> None:
    """Values with blanks, GPU types, allocated resources."""
    found = nodetexts.node(NODE_LINE)
    assert (found.amount, found.gpu_type) == (fakes.amount(cpus=8, gib=32, gpus=4), "a100")
    assert found.used == resources.Amount(millicpus=2000, memory=1000 * 2**20, gpus=1)
    assert found.state == "MIXED+DRAIN"
    assert found.reason.startswith("fan is broken")


def test_accounts_are_added_and_set_only() -> None:
    """Correct ones are unchanged, and so are others and those of other clusters."""
    goal = accounts.wanted(sites.site())
    live = associations.parse("research||1||\nresearch|bob|1||\nother|eve|1|cpu=1|\n")
    assert list(associations.changes(goal, live, cluster="c1")) == [
        ("modify", "account", "where", "name=research", "cluster=c1", "set", "grptresmins=gres/gpu=6000"),
        ("add", "user", "alice", "account=research", "cluster=c1"),
    ]
    done = associations.parse("research||1|gres/gpu=6000|\nresearch|alice|1||\nresearch|bob|1||\n")
    assert list(associations.changes(goal, done, cluster="c1")) == []


def test_limits_missing_in_the_site_file_are_ignored() -> None:
    """Those of other TRES, which setting ours keeps, and of single partitions."""
    goal = {("research", ""): {"grptresmins": "gres/gpu=6000"}, ("research", "bob"): {"fairshare": "3"}}
    live = associations.parse("research||1|cpu=5,gres/gpu=6000|\nresearch|bob|3||\nresearch|bob|7||debug\n")
    assert list(associations.changes(goal, live, cluster="c1")) == []


def test_sacctmgr_is_limited_to_the_sites_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slurmdbd may serve several; sacctmgr means all of them by default."""
    asked: list[Sequence[str]] = []

    async def sacctmgr(accounting: object, *words: str) -> str:
        asked.append(words)
        return ""

    monkeypatch.setattr(associations.Associations, "_sacctmgr", sacctmgr)
    planned = accounts.plan(sites.site(), cluster="c1")
    assert "cluster=c1" in asked[0]
    assert planned
    assert all("cluster=c1" in command for command in planned)
