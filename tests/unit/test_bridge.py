"""The steps of the protocol, with fakes of Slurm and Kubernetes."""

from __future__ import annotations

import dataclasses
import signal

import msgspec
import pytest

from penstock import errors
from penstock.bridge import admission, container, gang, launch, sweeps
from penstock.bridge import bridge as bridging
from penstock.kube import kinds, podview, reflectors, types
from penstock.model import jobs
from penstock.model.reasons import RefusalKind
from tests.unit import fakes


@dataclasses.dataclass
class World:
    """A bridge and its surroundings."""

    slurm: fakes.FakeSlurm
    kube: fakes.FakeKube
    bridge: bridging.Bridge
    sweeper: sweeps.Sweeper

    def add_pod(self, pod: types.Pod) -> None:
        """Add a pod to the API and the cache."""
        self.kube.add_pod(pod)
        self.bridge.context.pods.put(pod)


@pytest.fixture
def world() -> World:
    clock = fakes.ManualClock()
    slurm, kube = fakes.FakeSlurm(), fakes.FakeKube()
    pods = reflectors.Reflector(kube, kinds.PODS, types.Pod, indexes=podview.INDEXES, time=clock)
    nodes = reflectors.Reflector(kube, kinds.NODES, types.Node, time=clock)
    for name in ("n1", "n2"):
        nodes.objects[f"/{name}"] = fakes.node(name)
        kube.add_node(fakes.node(name))
    for picture in (pods, nodes):
        picture.listed.set()
    bridge = fakes.bridge(slurm=slurm, kube=kube, pods=pods, nodes=nodes, time=clock)
    return World(slurm, kube, bridge, bridge.sweeper)


async def test_admission_reserves_the_room(world: World) -> None:
    for job_id in (1, 2):
        world.slurm.add(fakes.allocation(job_id, gpus=3))
    assert await fakes.admit(world.bridge, fakes.identity(1)) == ()
    assert await fakes.admit(world.bridge, fakes.identity(2)) == ("waits for gpu on n1: 1 free of 3 needed",)
    assert fakes.reserved(world.bridge) == (1,)


async def test_admission_needs_fresh_caches(world: World) -> None:
    """I4."""
    world.slurm.add(fakes.allocation(1))
    world.bridge.context.pods.listed.clear()
    assert await fakes.admit(world.bridge, fakes.identity(1)) == (
        "waits for Kubernetes: the API does not answer",
    )


@pytest.mark.parametrize("own", ["", "run 3"])
async def test_admission_restores_the_owners_comment(world: World, own: str) -> None:
    """If Slurm refuses the comment, the job starts all the same."""
    world.slurm.add(fakes.allocation(1))
    world.slurm.comments[1] = own
    await world.slurm.say_why_it_waits(1, "waits for gpu on n1")
    assert world.slurm.comments[1].startswith("waits for gpu on n1")
    assert await fakes.admit(world.bridge, fakes.identity(1)) == ()
    assert world.slurm.comments[1] == own
    await world.slurm.say_why_it_waits(1, "waits for gpu on n1")
    world.slurm.set_comment = _refusing  # type: ignore[method-assign]  # one call that fails
    assert await fakes.admit(world.bridge, fakes.identity(1)) == ()


async def _refusing(job_id: int, text: str) -> None:
    raise errors.SlurmUnavailable("scontrol: Unable to contact slurm controller")


async def test_a_job_cancelled_during_admission_reserves_nothing(world: World) -> None:
    """Its Epilog runs while Slurm is still being asked."""
    world.slurm.add(fakes.allocation(1))
    answer = world.slurm.details

    async def cancelled_meanwhile(job_id: int) -> jobs.Job:
        found = await answer(job_id)
        await world.bridge.releasing.release(job_id, "n1")
        return found

    world.slurm.details = cancelled_meanwhile  # type: ignore[method-assign]  # the race, made certain
    assert await fakes.admit(world.bridge, fakes.identity(1)) == fakes.said(RefusalKind.CANCELLED)
    assert fakes.reserved(world.bridge) == ()


async def test_only_the_owner_may_launch(world: World) -> None:
    """By the uid of the socket's peer."""
    world.slurm.add(fakes.allocation(1))
    assert (await world.bridge.launching.allocation_for(1, 1001)).identity.job_id == 1
    with pytest.raises(launch.NotYours):
        await world.bridge.launching.allocation_for(1, 1002)


async def test_a_job_that_does_not_run_cannot_be_launched(world: World) -> None:
    """Pending, ended and unknown jobs have no pods."""
    world.slurm.add(fakes.allocation(1), state="PENDING")
    for job_id in (1, 99):
        with pytest.raises(launch.NotYours):
            await world.bridge.launching.allocation_for(job_id, 1001)


async def test_a_job_without_admission_is_admitted_at_launch(world: World) -> None:
    """Slurm takes a killed PrologSlurmctld for success; without room the job is requeued."""
    world.slurm.add(fakes.allocation(1, gpus=3))
    allocation = await world.bridge.launching.allocation_for(1, 1001)
    world.add_pod(fakes.pod("notebook", gpus=2))
    with pytest.raises(gang.GangRefused, match="waits for gpu on n1") as refused:
        await world.bridge.launching.launch(allocation, fakes.REQUEST, fakes.nobody)
    assert refused.value.outcome.requeue
    assert ("create", "pods", "slurm-job-1") not in world.kube.calls
    assert world.bridge.context.store.reservation(1) is None
    pods = world.bridge.context.pods
    pods.gone(pods.objects["default/notebook"])
    del world.kube.objects["pods", "default", "notebook"]
    assert await world.bridge.launching.launch(allocation, fakes.REQUEST, fakes.nobody)
    assert world.bridge.context.store.reservation(1) == allocation


MADE = 1767225600
"""2026-01-01, 0:00, in seconds since 1970."""


@pytest.mark.parametrize(("submitted", "goes"), [(MADE + 10, True), (MADE - 60, False)])
async def test_pods_of_an_earlier_job_with_the_same_id_are_deleted(
    world: World, submitted: int, goes: bool
) -> None:
    """slurmctld lost its state: pods older than the job are not its own; younger ones are."""
    world.slurm.add(fakes.allocation(1))
    world.slurm.allocations[1] = dataclasses.replace(world.slurm.allocations[1], submitted=submitted)
    pod = fakes.pod("slurm-job-1", job=fakes.identity(1))
    made = msgspec.structs.replace(pod.metadata, creation_timestamp="2026-01-01T00:00:00Z")
    world.add_pod(msgspec.structs.replace(pod, metadata=made))
    found = await fakes.admit(world.bridge, fakes.identity(1))
    assert found == (("waits for pod slurm-job-1 of its earlier attempt to be gone",) if goes else ())
    assert world.kube.names("pods") == ([] if goes else ["slurm-job-1"])


async def test_attach_creates_no_pod(world: World) -> None:
    assert await world.bridge.launching.attach(fakes.allocation(1), fakes.REQUEST) == ()
    assert [call[0] for call in world.kube.calls] == ["get"]


async def test_an_earlier_attempts_pod_is_deleted_and_waited_for(world: World) -> None:
    world.slurm.add(fakes.allocation(1, restart=1))
    world.add_pod(fakes.pod("old", job=fakes.identity(1)))
    found = await fakes.admit(world.bridge, fakes.identity(1, restart=1))
    assert found == ("waits for pod old of its earlier attempt to be gone",)
    assert ("delete", "pods", "old") in world.kube.calls


async def test_a_trusted_partition_is_not_checked(world: World) -> None:
    """kube-scheduler finds the room."""
    world.slurm.add(fakes.allocation(1, gpus=4), partition="trusting")
    world.add_pod(fakes.pod("notebook", gpus=4))
    assert await fakes.admit(world.bridge, fakes.identity(1)) != ()
    world.bridge.context.settings = fakes.policy("trusting", mode="trust")
    assert await fakes.admit(world.bridge, fakes.identity(1)) == ()


@pytest.mark.parametrize(
    ("number", "how", "command"),
    [
        (signal.SIGUSR1, {"everyone": False}, "kill -USR1 1"),
        (signal.SIGUSR1, {"everyone": True}, "kill -USR1 -1"),
        (signal.SIGTERM, {"everyone": True}, "kill -TERM -1"),
        (signal.SIGTERM, {"everyone": False}, "kill -TTIN 1"),
        (signal.SIGTERM, {"everyone": False, "agent": False}, "kill -TERM 1"),
    ],
)
async def test_signals_are_sent_to_the_agent_or_all_processes(
    world: World, number: signal.Signals, how: dict[str, bool], command: str
) -> None:
    await container.Container(world.kube, fakes.pod("p")).signal(number, **how)
    assert world.kube.commands == [("/bin/sh", "-c", command)]


async def test_an_abandoned_node_is_drained_and_resumed_later(world: World) -> None:
    """When the pod is gone."""
    drainer = fakes.drainer(world.bridge)
    await drainer.abandon(1, "n1")
    world.slurm.reasons["n2"] = "broken fan"
    world.add_pod(fakes.pod("stuck", job=fakes.identity(1), deleting=True))
    await drainer.lift()
    assert set(world.slurm.reasons) == {"n1", "n2"}
    del world.kube.objects["pods", "default", "stuck"]
    await drainer.lift()
    assert world.slurm.reasons == {"n2": "broken fan"}


async def test_a_node_that_left_kubernetes_is_clean(world: World) -> None:
    drainer = fakes.drainer(world.bridge)
    await drainer.abandon(1, "n9")
    world.add_pod(fakes.pod("stuck", on="n9", job=fakes.identity(1)))
    await drainer.lift()
    assert world.slurm.reasons == {}


def test_delays_double_up_to_two_minutes() -> None:
    assert [admission.wait_after(count) for count in (1, 2, 3, 4, 5, 50)] == [12, 24, 48, 96, 120, 120]


async def test_a_job_that_skipped_job_submit_is_not_admitted(world: World) -> None:
    """Its script would run on the node itself, without a launcher."""
    world.slurm.add(fakes.allocation(1))
    world.slurm.allocations[1] = dataclasses.replace(world.slurm.allocations[1], prepared=False)
    assert await fakes.admit(world.bridge, fakes.identity(1)) == fakes.said(RefusalKind.NOT_PREPARED)
    assert fakes.reserved(world.bridge) == ()


async def test_attach_finishes_an_announced_placement(world: World) -> None:
    """penstockd was killed between the announcement and binding rank 0: that pod is bound, once."""
    world.slurm.add(fakes.allocation(1))
    allocation = await world.bridge.launching.allocation_for(1, 1001)
    world.bridge.context.store.reserve(allocation)

    async def dies() -> None:
        raise errors.KubeUnavailable("killed here")

    with pytest.raises(errors.KubeUnavailable):
        await world.bridge.launching.launch(allocation, fakes.REQUEST, dies)
    made = world.kube.calls.count(("create", "pods", "slurm-job-1"))
    (pod,) = await world.bridge.launching.attach(allocation, fakes.REQUEST)
    assert pod.spec.node_name == "n1"
    assert world.kube.calls.count(("create", "pods", "slurm-job-1")) == made
    assert ("bind", "pods", "slurm-job-1") in world.kube.calls


async def test_attach_creates_a_missing_secret_of_a_trusted_pod(world: World) -> None:
    """penstockd was killed before it created the Secret of a pod that kube-scheduler had placed."""
    allocation = dataclasses.replace(fakes.allocation(1), partition="open")
    world.bridge.context.settings = fakes.policy("open", mode="trust")
    namespace = await fakes.namespace(world.bridge, allocation)
    pod = fakes.pod("slurm-job-1", job=allocation.identity)
    world.kube.add_pod(
        msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace=namespace))
    )
    found = await world.bridge.launching.attach(allocation, fakes.REQUEST)
    assert [one.metadata.uid for one in found] == [pod.metadata.uid]
    assert len(world.kube.names("secrets")) == 1
