"""GPUs under several resource names are counted separately everywhere."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.audit import booking, snapshots
from penstock.bridge import capacity, jobstore
from penstock.kube import podview, types
from penstock.model import audits, jobs, resources, sentences
from penstock.model.podpolicy import PodPolicy
from penstock.model.siteview import NodeKind, SiteView
from penstock.render import pods
from penstock.slurm import jobtexts, nodetexts
from tests.unit import fakes, slurmtexts

AMD, MIG = "amd.com/gpu", "nvidia.com/mig-1g.10gb"
RESOURCES = {"mi300": AMD, "1g.10gb": MIG}
COUNTS = st.dictionaries(st.sampled_from([AMD, MIG, "rdma/hca"]), st.integers(0, 9))


def share_of(gres: str) -> jobs.NodeShare:
    return jobtexts.shown(slurmtexts.show_job(gres), 1).shares[0].in_kubernetes(RESOURCES)


def node(**more: str) -> types.Node:
    allocatable: dict[str, str | int | float] = {"cpu": "8", "memory": "32Gi", **more}
    ready = types.Condition(type="Ready", status="True")
    status = types.NodeStatus(allocatable=allocatable, conditions=[ready])
    return types.Node(metadata=types.Meta(name="n1"), status=status)


def pod(name: str, *, job_id: int = 0, requests: dict[str, str]) -> types.Pod:
    labels = pods.labels_of(fakes.identity(job_id)) if job_id else {}
    container = types.Container(name="job", resources=types.Requirements(requests={**requests}))
    return types.Pod(
        metadata=types.Meta(name=name, namespace="x", uid=name, labels=labels),
        spec=types.PodSpec(node_name="n1", containers=[container]),
        status=types.PodStatus(phase="Running"),
    )


@pytest.mark.parametrize(
    ("gres", "gpus", "devices"),
    [
        ("gpu:2(IDX:0-1)", 2, ()),
        ("gpu:a100:2(IDX:0-1)", 2, ()),
        ("gpu:mi300:2(IDX:0-1)", 0, ((AMD, 2),)),
        ("gpu:1g.10gb:3(IDX:0-2)", 0, ((MIG, 3),)),
        ("gpu:a100:1(IDX:0),gpu:mi300:2(IDX:1-2)", 1, ((AMD, 2),)),
        ("", 0, ()),
    ],
)
def test_slurm_gpu_types_map_to_resource_names(gres: str, gpus: int, devices: resources.Devices) -> None:
    """Types without a name of their own map to the default resource; mapping twice changes nothing."""
    share = share_of(gres)
    assert (share.amount.gpus, share.amount.devices) == (gpus, devices)
    assert share.in_kubernetes(RESOURCES) == share


def test_a_pod_requests_only_its_types_resource() -> None:
    allocation = dataclasses.replace(fakes.allocation(), shares=(share_of("gpu:mi300:2(IDX:0-1)"),))
    made = pods.render_pod(allocation, 0, owner=fakes.OWNER, request=fakes.REQUEST, policy=fakes.SETTINGS)
    asked = made["spec"]["containers"][0]["resources"]
    assert asked["requests"] == asked["limits"] == {"cpu": "2000m", "memory": str(2048 * 2**20), AMD: "2"}


def refused(gres: str, there: types.Node, *others: types.Pod) -> tuple[str, ...]:
    allocation = dataclasses.replace(fakes.allocation(), shares=(share_of(gres),))
    empty = jobstore.Store(lambda: 5.0)
    found = capacity.refusals(allocation, nodes={"/n1": there}, pods=others, reserved=empty)
    return tuple(map(sentences.refusal, found))


def test_gpus_of_another_name_are_no_room() -> None:
    """The refusal has the resource's name and its holders."""
    both = node(**{"nvidia.com/gpu": "8", AMD: "2"})
    assert refused("gpu:mi300:2(IDX:0-1)", both) == ()
    guest = pod("guest", requests={AMD: "1"})
    said = refused("gpu:mi300:2(IDX:0-1)", both, guest)
    assert said == ("waits for amd.com/gpu on n1: 1 free of 2 needed, held by x/guest",)
    assert refused("gpu:a100:8(IDX:0-7)", both, guest) == ()
    assert refused("gpu:mi300:1(IDX:0)", node(**{"nvidia.com/gpu": "8"})) != ()


def test_reservations_are_counted_by_name() -> None:
    reserved = jobstore.Store(lambda: 5.0)
    held = dataclasses.replace(fakes.allocation(9), shares=(share_of("gpu:mi300:2(IDX:0-1)"),))
    reserved.reserve(held)
    both = {"/n1": node(**{"nvidia.com/gpu": "2", AMD: "2"})}
    for gres, free in (("gpu:a100:2(IDX:0-1)", True), ("gpu:mi300:1(IDX:0)", False)):
        wanted = dataclasses.replace(fakes.allocation(10), shares=(share_of(gres),))
        assert (capacity.refusals(wanted, nodes=both, pods=(), reserved=reserved) == ()) is free


def snapshot(found: types.Pod, gres: str, *, daemon: bool = True) -> snapshots.Snapshot:
    raw = fakes.job(17, state="RUNNING", shares=jobtexts.shown(slurmtexts.show_job(gres), 1).shares)
    view = audits.DaemonView(bridged_partitions=("gpu",), gpu_resources=RESOURCES)
    job = raw.in_kubernetes(RESOURCES if daemon else {})
    there = node(**{"nvidia.com/gpu": "4", AMD: "4", "rdma/hca": "1"})
    return snapshots.Snapshot(
        pods=(found,), nodes=(there,), secrets=(), jobs={17: job}, daemon=view if daemon else None
    )


@pytest.mark.parametrize(
    ("requests", "gres", "kinds"),
    [
        ({AMD: "2"}, "gpu:mi300:2(IDX:0-1)", []),
        ({AMD: "3"}, "gpu:mi300:2(IDX:0-1)", ["more-than-its-share"]),
        ({"nvidia.com/gpu": "2"}, "gpu:mi300:2(IDX:0-1)", ["more-than-its-share"]),
        ({AMD: "2", "rdma/hca": "1"}, "gpu:mi300:2(IDX:0-1)", []),
    ],
)
def test_the_check_compares_by_name(requests: dict[str, str], gres: str, kinds: list[str]) -> None:
    """A pod with GPUs of the wrong name exceeds its share; other devices do not concern Slurm."""
    found = booking.judge(snapshot(pod("p", job_id=17, requests=requests), gres))
    assert [each.kind for each in found] == kinds


def test_the_check_ignores_names_without_penstockd() -> None:
    """Only penstockd knows the mapping."""
    seen = snapshot(pod("p", job_id=17, requests={AMD: "2"}), "gpu:mi300:2(IDX:0-1)", daemon=False)
    assert list(booking.judge(seen)) == []


def test_reserved_devices_are_in_the_audit() -> None:
    import msgspec

    held = audits.Held(job_id=1, restart=0, node="n1", devices=((AMD, 2),))
    again = msgspec.json.decode(msgspec.json.encode(audits.DaemonView(held=(held,))), type=audits.DaemonView)
    assert again.held[0].amount == resources.Amount(devices=((AMD, 2),))


@given(COUNTS, COUNTS)
def test_sums_by_name_are_exact(one: dict[str, int], other: dict[str, int]) -> None:
    """Addition and subtraction are inverse."""
    first, second = (podview.amount({name: str(n) for name, n in each.items()}) for each in (one, other))
    total = first + second
    assert total - second == first
    assert {name: total.count_of(name) for name in one | other} == {
        name: one.get(name, 0) + other.get(name, 0) for name in one | other
    }
    assert total.shortages(total) == ()
    assert first.largest(second).shortages(total) == ()


@pytest.mark.parametrize(
    ("gres", "gpus", "types_"),
    [
        ("gpu:4(S:0)", 4, ()),
        ("gpu:a100:4(S:0)", 4, (("a100", 4),)),
        ("gpu:1g.10gb:7", 7, (("1g.10gb", 7),)),
        ("gpu:a100:2,gpu:mi300:2", 4, (("a100", 2), ("mi300", 2))),
        ("gpu:4090:2(S:0-1)", 2, (("4090", 2),)),
        ("vgpu:8,gpu:a100:2(S:0,1)", 2, (("a100", 2),)),
        ("(null)", 0, ()),
    ],
)
def test_gpu_types_of_a_node_are_parsed(gres: str, gpus: int, types_: resources.Devices) -> None:
    """As scontrol shows them, also names that begin with a digit."""
    found = nodetexts.node(f"NodeName=n1 Arch=x86_64 CPUTot=8 RealMemory=100 Gres={gres} State=IDLE")
    assert (found.amount.gpus, found.gpus_by_type) == (gpus, types_)


def test_a_site_with_one_name_needs_no_type() -> None:
    """`explain` and `mkinst` request the common resource of all nodes; if they differ, the default."""
    amd = NodeKind(gpus=4, gpu_type="mi300")
    policy = PodPolicy(gpu_resources=RESOURCES)
    assert SiteView(nodes=(amd,), pods=policy).gpu_resource() == AMD
    both = SiteView(nodes=(amd, NodeKind(gpus=4, gpu_type="a100")), pods=policy)
    assert both.gpu_resource() == "nvidia.com/gpu"
    assert both.pods.gpu_resource("mi300") == AMD
