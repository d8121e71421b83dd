"""I4, step by step: lists that lack what is there, events out of order, a Slurm that forgets, clocks that
jump. Nothing is promised, freed, ended or deleted because of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from penstock import errors
from penstock.bridge import follower, unattended
from penstock.kube import apierrors, codec, kinds, lists, podview, reflectors, types, versions
from penstock.model import jobs
from penstock.model.reasons import Outcome, RefusalKind
from tests.unit import fakes
from tests.unit.test_bridge import World, world
from tests.unit.test_reflectors import Script, event, run

__all__ = ["world"]  # pytest finds the fixture by its name


# -- what the picture believes ---------------------------------------------------------------------------


async def test_an_empty_list_empties_nothing() -> None:
    """What it lacks is there when asked for by name: the list lied, and the picture stays."""
    server = Script([["a", "b"], [], []], [[errors.KubeGone("too old", status=410)]])
    server.there = {"a", "b"}
    clock = fakes.ManualClock()
    reflector = await run(server, clock=clock)
    assert set(reflector.objects) == {"default/a", "default/b"}


async def test_who_remembers_nothing_is_not_misled_by_the_first_list() -> None:
    """A watch tells of what it lacks, and of what has gone meanwhile."""
    server = Script([["a"]], [])
    server.all = [event("ADDED", "a", "5"), event("ADDED", "b", "6"), event("DELETED", "a", "11")]
    reflector = await run(server)
    assert set(reflector.objects) == {"default/b"}
    assert reflector.fresh


async def test_a_watch_that_never_ends_does_not_keep_anybody_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it told until then counts."""

    class Frozen(Script):
        async def watch(self, kind: kinds.Kind, *, version: str, **_: Any) -> AsyncIterator[types.Event]:
            yield event("ADDED", "b", "6")
            await asyncio.Event().wait()

    monkeypatch.setattr(reflectors, "OPINION_PATIENCE", 0.02)
    reflector = reflectors.Reflector(Frozen([["a"]], []), kinds.PODS, types.Pod, time=fakes.ManualClock())
    await reflector.relist()
    assert set(reflector.objects) == {"default/a", "default/b"}


async def test_a_list_that_goes_on_lying_makes_the_picture_stale() -> None:
    """Nobody may promise anything by it."""
    server = Script([["a"], *([[]] * 40)], [[errors.KubeGone("too old", status=410)]])
    server.there = {"a"}
    reflector = await run(server)
    assert not reflector.fresh
    assert set(reflector.objects) == {"default/a"}


async def test_one_object_that_is_there_proves_the_lie() -> None:
    """A thousand missing objects are not asked for one by one to find that out."""
    names = [f"p{number}" for number in range(1000)]
    server = Script([names, []], [[errors.KubeGone("too old", status=410)]])
    server.there = set(names)
    asked: list[str] = []
    get = server.get

    async def counting(kind: kinds.Kind, *, name: str, namespace: str = "") -> bytes:
        asked.append(name)
        return await get(kind, namespace=namespace, name=name)

    server.get = counting  # type: ignore[method-assign]  # the same server, with somebody who counts
    reflector = await run(server)
    assert len(reflector.objects) == 1000
    assert len(asked) <= reflectors.AT_ONCE


async def test_a_list_from_the_past_is_refused_and_a_restored_cluster_accepted() -> None:
    """A lagging server is asked again; when all lists are old, the cluster itself has gone back."""
    reflector = reflectors.Reflector(Script([], []), kinds.PODS, types.Pod, time=fakes.ManualClock())
    source = Script([["a"], *([["b"]] * reflectors.OLD_LISTS)], [])
    reflector._source = source
    await reflector.relist()
    source.version = "7"
    for _ in range(reflectors.OLD_LISTS - 1):
        with pytest.raises(errors.KubeUnavailable, match="from the past"):
            await reflector.relist()
        assert set(reflector.objects) == {"default/a"}
    assert await reflector.relist() == "7"
    assert set(reflector.objects) == {"default/b"}


async def test_what_is_made_while_a_list_comes_is_not_missing_from_it() -> None:
    """A launch in the midst of a long list would make every list a lie."""
    server = Script([["a"], ["a"]], [])
    reflector = reflectors.Reflector(server, kinds.PODS, types.Pod, time=fakes.ManualClock())
    await reflector.relist()
    server.there = {"a", "young"}
    reflector.apply(event("ADDED", "young", "11"))
    assert await reflector.relist() == "10"
    assert set(reflector.objects) == {"default/a", "default/young"}


async def test_what_a_list_has_shown_to_be_gone_does_not_come_back() -> None:
    """Somebody who follows the pod shows it once more, as it was."""
    server = Script([["a"], []], [])
    reflector = reflectors.Reflector(server, kinds.PODS, types.Pod, time=fakes.ManualClock())
    await reflector.relist()
    known = reflector.objects["default/a"]
    await reflector.relist()
    reflector.put(known)
    assert reflector.objects == {}


async def test_a_restored_cluster_brings_its_objects_back() -> None:
    """They have the uids that they had, and run."""
    source = Script([["a"], *([["a"]] * reflectors.OLD_LISTS)], [])
    reflector = reflectors.Reflector(source, kinds.PODS, types.Pod, time=fakes.ManualClock())
    await reflector.relist()
    reflector.apply(event("DELETED", "a", "12"))
    source.version = "7"
    for _ in range(reflectors.OLD_LISTS - 1):
        with pytest.raises(errors.KubeUnavailable, match="from the past"):
            await reflector.relist()
    await reflector.relist()
    assert set(reflector.objects) == {"default/a"}


@pytest.mark.parametrize(
    ("events", "version"),
    [
        ([("ADDED", "5"), ("MODIFIED", "7"), ("MODIFIED", "6")], "7"),
        ([("ADDED", "5"), ("ADDED", "5")], "5"),
        ([("MODIFIED", "6"), ("ADDED", "5")], "6"),
        ([("ADDED", "5"), ("DELETED", "8"), ("MODIFIED", "7")], None),
        ([("DELETED", "8"), ("ADDED", "5")], None),
    ],
)
def test_late_events_bring_nothing_back(events: list[tuple[str, str]], version: str | None) -> None:
    """Neither an older state nor an object that has ended."""
    reflector = reflectors.Reflector(Script([], []), kinds.PODS, types.Pod, time=fakes.ManualClock())
    for kind, number in events:
        reflector.apply(event(kind, "a", number))
    known = reflector.objects.get("default/a")
    assert (known.metadata.resource_version if known else None) == version


def test_a_name_may_be_used_again() -> None:
    """The end of the old object, told late, is not the end of the new one."""
    reflector = reflectors.Reflector(Script([], []), kinds.PODS, types.Pod, time=fakes.ManualClock())
    reflector.put(fakes.pod("a", version="9"))
    old = {"metadata": {"name": "a", "namespace": "default", "uid": "older", "resourceVersion": "8"}}
    raw = types.Event(type="DELETED", object=msgspec.Raw(msgspec.json.encode(old)))
    reflector.apply(raw)
    assert "default/a" in reflector.objects


def test_versions_that_are_no_numbers_are_taken_as_they_come() -> None:
    """Only numbers have an order."""
    assert versions.is_older("9", than="10")
    assert not versions.is_older("a", than="b")
    assert versions.is_news("a", known="b")
    assert not versions.is_news("a", known="a")


def test_the_dead_are_remembered_for_a_while_only() -> None:
    """The list of those that ended does not grow for ever."""
    dead = versions.Tombstones()
    for number in range(versions.REMEMBERED + 5):
        dead.add(str(number))
    assert "4" not in dead
    assert "5" in dead


@pytest.mark.parametrize(
    ("body", "code", "kind"),
    [
        (b'{"kind": "Status", "message": "pods p not found"}', 404, errors.KubeNotFound),
        (b"404 page not found", 404, errors.KubeUnavailable),
        (b"<html>no such site</html>", 404, errors.KubeUnavailable),
        (b'{"kind": "Status"}', 401, errors.KubeUnavailable),
        (b'{"kind": "Status"}', 403, errors.KubeError),
        (b"<html>403 Forbidden</html>", 403, errors.KubeUnavailable),
        (
            b'{"kind": "Status", "message": "pods \\"p\\" is forbidden: not yet ready to handle request"}',
            403,
            errors.KubeUnavailable,
        ),
        (b'{"kind": "Status", "message": "pods is forbidden: exceeded quota: q"}', 403, errors.KubeError),
        (b"<html>", 502, errors.KubeUnavailable),
    ],
)
def test_only_the_api_can_say_that_something_is_not_there(
    body: bytes, code: int, kind: type[errors.KubeError]
) -> None:
    """A load balancer's 404 is no knowledge."""
    with pytest.raises(errors.KubeError) as caught:
        apierrors.raise_for(body, code)
    assert type(caught.value) is kind


@pytest.mark.parametrize("answer", [b"", b"{", b"<html>", b'{"items": 3}', b'{"metadata": {}}'])
def test_an_answer_that_cannot_be_read_is_no_answer(answer: bytes) -> None:
    """Cut off, or from somebody else."""
    with pytest.raises(errors.KubeUnavailable):
        codec.decode(answer, lists.Page[types.Pod])


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
