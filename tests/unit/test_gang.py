"""All pods of a job or none."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from penstock import errors
from penstock.bridge import gang, jobnamespaces
from penstock.kube import kinds, podview, reflectors, types
from penstock.model import jobs
from penstock.model.podpolicy import PodPolicy
from tests.unit import fakes


async def create(
    kube: fakes.FakeKube,
    allocation: jobs.Allocation | None = None,
    *,
    status: types.PodStatus | None = None,
    starting: gang.Starting | None = None,
    on_bind: Callable[[tuple[str, str, str]], None] | None = None,
    holds: Callable[[int, str], bool] | None = None,
    features: types.NodeFeatures | None = None,
    policy: PodPolicy = fakes.SETTINGS,
) -> tuple[types.Pod, ...]:
    """Create a gang whose pods get this status, or run, when they are bound."""
    pods = reflectors.Reflector(
        kube, kinds.PODS, types.Pod, indexes=podview.INDEXES, time=fakes.ManualClock()
    )
    runs = lambda key: pods._set("/".join(key[1:]), kube.show(key, status or fakes.running()))  # noqa: E731  # a default
    kube.on_bind = on_bind or runs
    nodes = reflectors.Reflector(kube, kinds.NODES, types.Node, time=fakes.ManualClock())
    for name in ("n1", "n2", "n3"):
        node = fakes.node(name)
        able = msgspec.structs.replace(node.status, features=features or types.NodeFeatures())
        nodes.put(msgspec.structs.replace(node, status=able))
    bridge = fakes.bridge(
        slurm=fakes.FakeSlurm(),
        kube=kube,
        pods=pods,
        nodes=nodes,
        time=fakes.ManualClock(),
        start_timeout=5.0,
    )
    bridge.context.settings = policy
    wanted = allocation or fakes.allocation(on=("n1", "n2"))
    bridge.context.store.reserve(wanted)
    if holds is not None:
        bridge.context.store.holds = holds  # type: ignore[method-assign, assignment]  # Slurm takes nodes back
    plan = gang.Plan(allocation=wanted, owner=fakes.OWNER, request=fakes.REQUEST)
    return await bridge.launching._maker.create(plan, starting or fakes.nobody)


@pytest.mark.parametrize("can", [True, False])
async def test_strict_groups_where_the_node_supports_them(can: bool) -> None:
    """A kubelet without support rejects the pod."""
    kube = fakes.FakeKube()
    features = types.NodeFeatures(supplemental_groups_policy=can)
    await create(kube, features=features)
    contexts = [one["spec"]["securityContext"] for key, one in kube.objects.items() if key[0] == "pods"]
    assert len(contexts) == 2
    policies = {context.get("supplementalGroupsPolicy") for context in contexts}
    assert policies == {"Strict" if can else None}


async def test_bindings_come_after_pods_and_secret() -> None:
    """A refused gang has never run."""
    kube = fakes.FakeKube()
    await create(kube)
    assert [call[:2] for call in kube.calls] == [
        ("create", "namespaces"),
        ("create", "networkpolicies.networking.k8s.io"),
        ("create", "pods"),
        ("create", "pods"),
        ("create", "secrets"),
        ("bind", "pods"),
        ("bind", "pods"),
        ("run", "pods"),
        ("run", "pods"),
    ]
    nodes = [obj["spec"]["nodeName"] for (kind, _, _), obj in kube.objects.items() if kind == "pods"]
    assert nodes == ["n1", "n2"]


async def test_rank_zero_is_bound_last() -> None:
    kube = fakes.FakeKube()
    await create(kube, fakes.allocation(on=("n1", "n2", "n3")))
    assert [name for verb, _, name in kube.calls if verb == "bind"] == [
        "slurm-job-17-n1",
        "slurm-job-17-n2",
        "slurm-job-17",
    ]


async def test_a_rejected_pod_stops_the_gang() -> None:
    """Rank 0 is never told the names, all pods are deleted, and the job is requeued."""
    kube = fakes.FakeKube()
    with pytest.raises(gang.GangRefused, match="rank 1 on n2: OutOfcpu") as caught:
        await create(kube, status=types.PodStatus(phase="Failed", reason="OutOfcpu", message="no cpu"))
    assert caught.value.outcome.requeue
    assert "run" not in {verb for verb, _, _ in kube.calls}
    assert not [key for key in kube.objects if key[0] == "pods"]


async def test_rank_0s_pod_owns_the_secret() -> None:
    kube = fakes.FakeKube()
    made = await create(kube)
    secret = kube.objects["secrets", "user-alice", "slurm-job-17"]
    assert secret["metadata"]["ownerReferences"][0]["uid"] == made[0].metadata.uid


async def test_creating_again_finds_the_existing_gang() -> None:
    """As after a crash between any two steps."""
    kube = fakes.FakeKube()
    first = await create(kube)
    second = await create(kube)
    assert [pod.metadata.uid for pod in second] == [pod.metadata.uid for pod in first]
    assert sum(1 for call in kube.calls if call[0] == "bind") == 2


@pytest.mark.parametrize("step", [("create", "secrets"), ("bind", "pods")])
async def test_a_refused_gang_is_deleted(step: tuple[str, str]) -> None:
    """By a quota or a webhook; the reason is kept."""
    kube = fakes.FakeKube()
    kube.refuse[step] = errors.KubeError("exceeded quota: q", status=403)
    with pytest.raises(gang.GangRefused, match="exceeded quota"):
        await create(kube)
    assert not [key for key in kube.objects if key[0] == "pods"]


async def test_an_unreachable_api_is_not_a_refusal() -> None:
    """Nothing is deleted; it is tried again."""
    kube = fakes.FakeKube()
    kube.refuse["bind", "pods"] = errors.KubeUnavailable("no answer")
    with pytest.raises(errors.KubeUnavailable):
        await create(kube)
    assert len([key for key in kube.objects if key[0] == "pods"]) == 2


@pytest.mark.parametrize("resource", ["pods", "secrets"])
async def test_a_conflict_about_the_quota_is_no_refusal(resource: str) -> None:
    """For concurrent updates of a quota the API answers 409 and creates nothing."""
    kube = fakes.FakeKube()
    kube.refuse["create", "secrets"] = errors.KubeUnavailable("no answer")
    with pytest.raises(errors.KubeUnavailable):
        await create(kube, fakes.allocation(16 if resource == "pods" else 17))
    words = 'Operation cannot be fulfilled on resourcequotas "penstock": the object has been modified'
    kube.refuse = {("create", resource): errors.KubeConflict(words, status=409, reason="Conflict")}
    with pytest.raises(errors.KubeUnavailable, match="resourcequotas"):
        await create(kube, fakes.allocation(17))
    assert not [call for call in kube.calls if call[0] == "bind"]


async def test_a_terminating_pod_of_the_attempt_is_waited_for() -> None:
    """penstockd was killed while it deleted a refused gang."""
    kube = fakes.FakeKube()
    made = await create(kube)
    going = kube.objects["pods", "user-alice", made[1].metadata.name]
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    with pytest.raises(errors.KubeUnavailable, match="still being removed"):
        await create(kube)
    del kube.objects["pods", "user-alice", made[1].metadata.name]
    again = await create(kube)
    assert again[0].metadata.uid == made[0].metadata.uid
    assert again[1].metadata.uid != made[1].metadata.uid


async def test_a_foreign_pod_of_the_same_name_is_not_used() -> None:
    """Neither adopted nor deleted."""
    kube = fakes.FakeKube()
    await kube.create(kinds.PODS, {"metadata": {"name": "slurm-job-17"}, "spec": {}}, namespace="user-alice")
    with pytest.raises(gang.GangRefused, match="not this job's"):
        await create(kube)
    assert ("pods", "user-alice", "slurm-job-17") in kube.objects


async def test_a_deleted_namespace_is_created_again() -> None:
    """Otherwise a user's second job costs no request for it."""
    kube = fakes.FakeKube()
    known = jobnamespaces.Namespaces(kube, fakes.SETTINGS)
    for _ in range(3):
        await known.ensure(fakes.OWNER)
    assert len([call for call in kube.calls if call[1] == "namespaces"]) == 1
    await known.ensure(fakes.OWNER, anew=True)
    assert len([call for call in kube.calls if call[1] == "namespaces"]) == 2


async def test_a_quota_conflict_does_not_skip_the_network_policy() -> None:
    kube = fakes.FakeKube()
    known = jobnamespaces.Namespaces(kube, fakes.SETTINGS)
    words = 'Operation cannot be fulfilled on resourcequotas "site": the object has been modified'
    kube.refuse["create", str(kinds.NETWORK_POLICIES)] = errors.KubeConflict(words, reason="Conflict")
    with pytest.raises(errors.KubeUnavailable, match="resourcequotas"):
        await known.ensure(fakes.OWNER)
    kube.refuse.clear()
    await known.ensure(fakes.OWNER)
    assert [key for key in kube.objects if key[0] == str(kinds.NETWORK_POLICIES)]


async def test_the_launcher_is_told_before_the_script_can_run() -> None:
    """If penstockd is killed then and the pod vanishes, no second gang is created."""
    kube = fakes.FakeKube()
    calls: list[tuple[str, str]] = []

    async def told() -> None:
        calls.extend((verb, name) for verb, _, name in kube.calls if verb in ("bind", "run"))

    await create(kube, starting=told)
    assert calls == [("bind", "slurm-job-17-n1"), ("bind", "slurm-job-17"), ("run", "slurm-job-17-n1")]


@pytest.mark.parametrize("node", ["n1", "elsewhere"])
async def test_an_existing_binding_to_the_node_is_accepted(node: str) -> None:
    """An earlier try's answer may be lost; a binding to another node is an error."""
    kube = fakes.FakeKube()

    def late(key: tuple[str, str, str]) -> None:
        kube.objects[key]["spec"]["nodeName"] = node
        raise errors.KubeConflict("already assigned to a node", status=409)

    wanted = fakes.allocation(on=("n1",))
    if node == "n1":
        (pod,) = await create(kube, wanted, on_bind=late)
        assert (pod.spec.node_name, kube.names("pods")) == ("n1", [pod.metadata.name])
        return
    with pytest.raises(gang.GangRefused, match="already assigned"):
        await create(kube, wanted, on_bind=late)
    assert kube.names("pods") == []
