"""I4, step by step: incomplete lists, a Slurm that forgets, clocks that jump. Nothing is promised, freed,
ended or deleted because of them.
"""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from penstock import errors
from penstock.bridge import follower, unattended
from penstock.kube import kinds, podview, reflectors, types
from penstock.model import jobs
from penstock.model.reasons import Outcome, RefusalKind
from tests.unit import fakes
from tests.unit.test_bridge import World, world
from tests.unit.test_reflectors import Script

__all__ = ["world"]  # pytest finds the fixture by its name


# -- what is promised ------------------------------------------------------------------------------------


async def test_a_pod_missing_in_the_cache_takes_room(world: World) -> None:
    """Admission lists the node's pods from the API."""
    world.slurm.add(fakes.allocation(1, gpus=2))
    world.kube.add_pod(fakes.pod("unseen", gpus=3))
    (reason,) = await fakes.admit(world.bridge, fakes.identity(1))
    assert "held by default/unseen" in reason


async def test_a_pod_missing_in_a_list_takes_room(world: World) -> None:
    """The cache has it, and a GET confirms it."""
    world.slurm.add(fakes.allocation(1, gpus=2))
    world.add_pod(fakes.pod("left-out", gpus=3))
    world.kube.lists_nothing = {"pods"}
    (reason,) = await fakes.admit(world.bridge, fakes.identity(1))
    assert "held by default/left-out" in reason


async def test_a_deleted_pod_in_the_cache_takes_no_room(world: World) -> None:
    world.slurm.add(fakes.allocation(1, gpus=2))
    world.bridge.context.pods.put(fakes.pod("ghost", gpus=3))
    assert await fakes.admit(world.bridge, fakes.identity(1)) == ()


async def test_a_deleted_earlier_attempt_in_the_cache_does_not_block(world: World) -> None:
    """Its deletion is answered with 404."""
    world.slurm.add(fakes.allocation(1, restart=1))
    world.bridge.context.pods.put(fakes.pod("old", job=fakes.identity(1)))
    assert await fakes.admit(world.bridge, fakes.identity(1, restart=1)) != ()
    assert await fakes.admit(world.bridge, fakes.identity(1, restart=1)) == ()


async def test_attach_works_without_the_name_service(world: World) -> None:
    """The pod is found through the cache."""
    allocation = fakes.allocation(1)
    pod = fakes.pod("slurm-job-1", job=allocation.identity, status=fakes.running())
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace="user-alice"))
    world.kube.add_pod(pod)
    world.bridge.context.pods.put(pod)
    (found,) = await world.bridge.launching.attach(allocation, fakes.REQUEST)
    assert found.metadata.namespace == "user-alice"


async def test_admission_reads_nodes_from_the_api(world: World) -> None:
    """The event of a cordon may be late."""
    world.slurm.add(fakes.allocation(1))
    world.kube.add_node(fakes.node("n1", cordoned=True))
    assert await fakes.admit(world.bridge, fakes.identity(1)) == (
        "waits for node n1: cordoned in Kubernetes",
    )


@pytest.mark.parametrize("resource", ["pods", "nodes"])
async def test_admission_needs_the_apis_confirmation(world: World, resource: str) -> None:
    """Even with fresh caches."""
    world.slurm.add(fakes.allocation(1))
    world.kube.refuse["get", resource] = errors.KubeUnavailable("down")
    assert await fakes.admit(world.bridge, fakes.identity(1)) == fakes.said(RefusalKind.API_UNAVAILABLE)
    assert fakes.reserved(world.bridge) == ()


async def test_an_incomplete_job_list_releases_no_reservation(world: World) -> None:
    """Slurm is queried for the missing job."""
    world.slurm.add(fakes.allocation(1))
    world.bridge.context.store.reserve(fakes.allocation(1))

    async def none() -> tuple[jobs.LiveJob, ...]:
        return ()

    world.slurm.live_jobs = none  # type: ignore[method-assign]  # a Slurm that lies
    await world.sweeper.sweep()
    assert fakes.reserved(world.bridge) == (1,)


# -- ends, releases and deletions --------------------------------------------------------------------------


async def test_an_incomplete_job_list_sweeps_no_pod(world: World) -> None:
    """However often it is returned."""
    world.slurm.add(fakes.allocation(1))
    world.add_pod(fakes.pod("live", job=fakes.identity(1)))

    async def none() -> tuple[jobs.LiveJob, ...]:
        return ()

    world.slurm.live_jobs = none  # type: ignore[method-assign]  # a Slurm that lies
    for _ in range(4):
        await world.sweeper.sweep()
    assert world.kube.names("pods") == ["live"]


async def test_a_job_with_a_launcher_is_not_swept(world: World) -> None:
    """slurmctld has lost the job; slurmd still runs it until it is told."""
    world.add_pod(fakes.pod("forgotten", job=fakes.identity(5)))
    with world.bridge.context.store.attending(5):
        for _ in range(3):
            await world.sweeper.sweep()
        assert world.kube.names("pods")
    await world.sweeper.sweep()
    assert not world.kube.names("pods")
    assert not world.bridge.context.store.is_attended(5)


@pytest.mark.parametrize("sign", ["none", "launcher", "pod", "pending"])
async def test_a_job_without_launcher_and_pod_is_requeued(world: World, sign: str) -> None:
    """Not before Slurm had the time to notice it itself."""
    world.slurm.add(fakes.allocation(5), state="PENDING" if sign == "pending" else "RUNNING")
    world.bridge.context.store.reserve(fakes.allocation(5))
    if sign == "pod":
        world.add_pod(fakes.pod("p", job=fakes.identity(5)))
    if sign == "launcher":
        world.bridge.context.store.job(5).launchers = 1
    for _ in range(unattended.ROUNDS_TO_COME):
        await world.sweeper.sweep()
    assert world.slurm.requeued == []
    await world.sweeper.sweep()
    assert world.slurm.requeued == ([5] if sign == "none" else [])


async def test_an_unattended_job_older_than_slurmctld_is_requeued_soon(world: World) -> None:
    """A slurmctld stopped between admission and launch never starts the script."""
    world.slurm.add(fakes.allocation(5))
    world.bridge.context.store.reserve(fakes.allocation(5))
    world.slurm.older.add(5)
    for _ in range(unattended.ROUNDS_AFTER_RESTART):
        await world.sweeper.sweep()
    assert world.slurm.requeued == []
    await world.sweeper.sweep()
    assert world.slurm.requeued == [5]


async def test_an_unattended_job_with_no_requeue_is_cancelled(world: World) -> None:
    """With the reason as comment; the sweep goes on."""
    world.slurm.add(fakes.allocation(5))
    world.bridge.context.store.reserve(fakes.allocation(5))
    world.slurm.older.add(5)
    world.slurm.never_again.add(5)
    for _ in range(unattended.ROUNDS_AFTER_RESTART + 1):
        await world.sweeper.sweep()
    assert world.slurm.cancelled == [5]
    assert world.slurm.comments[5] == unattended.ENDED


async def test_an_empty_list_does_not_end_an_attached_job(world: World) -> None:
    """A reconnected launcher finds its pod by name."""
    allocation = fakes.allocation(17)
    name = "slurm-job-17"
    pod = fakes.pod(name, job=allocation.identity)
    namespace = await fakes.namespace(world.bridge, allocation)
    meta = {"name": name, "uid": pod.metadata.uid, "labels": pod.metadata.labels}
    world.kube.objects["pods", namespace, name] = {"metadata": meta, "spec": {"nodeName": "n1"}}
    world.kube.lists_nothing = {"pods"}
    (found,) = await world.bridge.launching.attach(allocation, fakes.REQUEST)
    assert found.metadata.uid == pod.metadata.uid


async def test_attach_finds_pods_with_names_of_another_release(world: World) -> None:
    """By label and rank."""
    allocation = fakes.allocation(17, on=("n1", "n2"))
    namespace = await fakes.namespace(world.bridge, allocation)
    for rank, share in enumerate(allocation.shares):
        pod = fakes.pod(f"slurm-17-0-{rank}", on=share.node, job=allocation.identity, rank=rank)
        meta = msgspec.structs.replace(pod.metadata, namespace=namespace)
        world.add_pod(msgspec.structs.replace(pod, metadata=meta))
    found = await world.bridge.launching.attach(allocation, fakes.REQUEST)
    assert [pod.metadata.name for pod in found] == ["slurm-17-0-0", "slurm-17-0-1"]
    world.bridge.context.store.reserve(allocation)
    await world.bridge.releasing.release(17, "n2")
    assert world.kube.names("pods") == ["slurm-17-0-0"]


async def test_an_empty_list_does_not_free_a_node(world: World) -> None:
    """The job's pod is found by name and deleted first."""
    allocation = fakes.allocation(17)
    world.bridge.context.store.reserve(allocation)
    namespace = await fakes.namespace(world.bridge, allocation)
    labels = fakes.pod("p", job=allocation.identity).metadata.labels
    meta = {"name": "slurm-job-17", "namespace": namespace, "uid": "u", "labels": labels}
    world.kube.objects["pods", namespace, "slurm-job-17"] = {"metadata": meta, "spec": {"nodeName": "n1"}}
    world.kube.lists_nothing = {"pods"}
    await world.bridge.releasing.release(17, "n1")
    assert world.kube.names("pods") == []


@pytest.mark.parametrize("lies", ["pods", "nodes"])
async def test_an_empty_cache_resumes_no_node(world: World, lies: str) -> None:
    """The API still has a pod there."""
    drainer = fakes.drainer(world.bridge)
    await drainer.abandon(1, "n1")
    world.add_pod(fakes.pod("stuck", job=fakes.identity(1), deleting=True))
    if lies == "nodes":
        world.bridge.context.nodes.objects.clear()
    else:
        world.kube.lists_nothing = {"pods"}
    await drainer.lift()
    assert "n1" in world.slurm.reasons


# -- time ------------------------------------------------------------------------------------------------


async def test_an_outage_extends_the_start_timeout() -> None:
    """Only an API that answers can show that a pod did not start."""
    kube, clock = fakes.FakeKube(), fakes.ManualClock()
    pods = reflectors.Reflector(kube, kinds.PODS, types.Pod, indexes=podview.INDEXES, time=clock)
    pod = fakes.pod("p", status=types.PodStatus())
    kube.add_pod(pod)
    kube.refuse["get", "pods"] = errors.KubeUnavailable("down")
    nodes = reflectors.Reflector(kube, kinds.NODES, types.Node, time=clock)
    slurm = fakes.FakeSlurm()
    bridge = fakes.bridge(slurm=slurm, kube=kube, pods=pods, nodes=nodes, time=clock, start_timeout=0.0)
    task = asyncio.create_task(bridge.follower.end_of((pod,)))
    await asyncio.sleep(0.1)
    assert not task.done()
    del kube.refuse["get", "pods"]
    kube.show(("pods", "default", "p"), fakes.ended(0, reason="Completed"))
    pods.put(fakes.pod("p", status=types.PodStatus(), version="2"))
    clock.time += 1000
    assert await asyncio.wait_for(task, 60) == Outcome(exit_code=0)


def test_polling_backs_off() -> None:
    patience = follower.Patience(fakes.ManualClock(), 300)
    patience.news(started=True)
    waits = []
    for _ in range(9):
        waits.append(patience.seconds())
        patience.asked()
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_wall_clock_jumps_affect_no_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freshness and timeouts use the monotonic clock."""
    clock = fakes.ManualClock()
    reflector = reflectors.Reflector(Script([], []), kinds.PODS, types.Pod, time=clock)
    reflector.listed.set()
    reflector._broken_since = None
    patience = follower.Patience(clock, 300)
    for jump in (86400.0, -2 * 86400.0):
        now = time.time() + jump
        monkeypatch.setattr(time, "time", lambda at=now: at)
        assert reflector.fresh
        assert not patience.is_over()
