"""Steering of refused jobs: exclusions, delays and waking."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bridge import exclusions, retries
from penstock.kube import kinds, podview, reflectors, types
from penstock.model import nodes
from tests.unit import fakes

NODES = ("n1", "n2", "n3", "n4")


def target(name: str, *, gpus: int = 4, features: tuple[str, ...] = (), is_up: bool = True) -> nodes.Node:
    whole = fakes.amount(cpus=8, gib=32, gpus=gpus)
    return nodes.Node(
        name=name, state="IDLE" if is_up else "DOWN", amount=whole, features=frozenset(features)
    )


class World:
    """Four nodes of four GPUs, and jobs that want two."""

    def __init__(self) -> None:
        self.clock, self.slurm, kube = fakes.ManualClock(), fakes.FakeSlurm(), fakes.FakeKube()
        self.pods = reflectors.Reflector(
            kube, kinds.PODS, types.Pod, indexes=podview.INDEXES, time=self.clock
        )
        self.nodes = reflectors.Reflector(kube, kinds.NODES, types.Node, time=self.clock)
        self.numbers = itertools.count()
        self.slurm.places = tuple(target(name) for name in NODES)
        for name in NODES:
            self.nodes.objects[f"/{name}"] = fakes.node(name)
        for picture in (self.pods, self.nodes):
            picture.listed.set()
        bridge = fakes.bridge(
            slurm=self.slurm,
            kube=kube,
            pods=self.pods,
            nodes=self.nodes,
            time=self.clock,
            wall_clock=self.clock.now,
        )
        self.steering, self.store = bridge.steering, bridge.context.store

    def fill(self, *names: str, gpus: int = 3) -> None:
        """Foreign pods."""
        for name in names:
            self.pods.put(fakes.pod(f"other-{next(self.numbers)}", on=name, gpus=gpus))

    def empty(self, *names: str) -> None:
        for name in names:
            for pod in self.pods.by(podview.BY_NODE, name):
                self.pods.gone(pod)

    def run(self, job_id: int, *on: str, gpus: int = 2) -> None:
        self.store.reserve(fakes.allocation(job_id, on=on, gpus=gpus))

    async def refuse(self, job_id: int = 7, *, on: tuple[str, ...] = ("n1",), gpus: int = 2) -> bool:
        """Whether the job may start elsewhere at once."""
        self.slurm.queue.setdefault(job_id, fakes.job(job_id))
        self.steering.refused(fakes.allocation(job_id, on=on, gpus=gpus), on=on[:1])
        return await self.steering.put_off(job_id, 12, tries=1)

    def excluded(self, job_id: int = 7) -> tuple[str, ...]:
        return self.slurm.queue[job_id].excluded

    def sleeping(self) -> list[int]:
        return [job_id for job_id, seconds in self.slurm.delays.items() if seconds]


@pytest.fixture
def world() -> World:
    return World()


async def test_nodes_without_room_are_excluded(world: World) -> None:
    """All of them, not only the one that was tried."""
    world.fill("n1", "n2", "n4")
    assert await world.refuse()
    assert world.excluded() == ("n1", "n2", "n4")
    assert world.sleeping() == []


async def test_nodes_full_of_slurm_jobs_are_not_excluded(world: World) -> None:
    """Slurm waits for its own jobs by priority."""
    world.fill("n1", "n2")
    world.run(1, "n3", gpus=4)
    assert await world.refuse()
    assert world.excluded() == ("n1", "n2")


async def test_a_node_shared_with_foreign_pods_is_excluded(world: World) -> None:
    """Slurm sees two GPUs there, and one is free."""
    world.fill("n1", "n2", "n3", gpus=4)
    world.fill("n4", gpus=1)
    world.run(1, "n4", gpus=2)
    assert not await world.refuse()
    assert world.excluded() == ()


async def test_a_job_without_any_node_is_delayed(world: World) -> None:
    """Nothing is excluded: Slurm holds a job forever that fits on no node."""
    world.fill(*NODES)
    assert not await world.refuse()
    assert (world.excluded(), world.slurm.delays) == ((), {7: 12})


async def test_room_wakes_a_job(world: World) -> None:
    world.fill(*NODES)
    await world.refuse()
    await world.steering.look()
    assert world.sleeping() == [7]
    world.empty("n2")
    await world.steering.look()
    assert world.sleeping() == []
    assert world.excluded() == ("n1", "n3", "n4")


async def test_only_as_many_jobs_are_woken_as_fit(world: World) -> None:
    """By Slurm's priority; the others would be refused."""
    world.fill(*NODES)
    for job_id in range(10, 16):
        await world.refuse(job_id)
        world.slurm.priorities[job_id] = job_id
    world.empty("n3")
    world.fill("n3", gpus=1)
    await world.steering.look()
    assert world.sleeping() == [10, 11, 12, 13, 14]
    await world.steering.look()
    assert world.sleeping() == [10, 11, 12, 13, 14]
    world.clock.time += retries.ON_ITS_WAY_SECONDS  # Slurm wants others first: the next may try
    await world.steering.look()
    assert world.sleeping() == [10, 11, 12, 13]


async def test_an_exclusion_is_lifted_when_the_node_has_room(world: World) -> None:
    """For a job that waits for Slurm's own jobs elsewhere."""
    world.fill("n1", "n2", "n4")
    world.run(1, "n3", gpus=4)
    await world.refuse()
    world.empty("n1")
    await world.steering.look()
    assert world.excluded() == ("n2", "n4")


async def test_cordoned_and_unready_nodes_are_excluded(world: World) -> None:
    world.nodes.objects["/n1"] = fakes.node("n1", cordoned=True)
    world.nodes.objects["/n2"] = fakes.node("n2", ready=False)
    del world.nodes.objects["/n3"]
    assert await world.refuse()
    assert world.excluded() == ("n1", "n2", "n3")


async def test_the_owners_exclusions_are_kept(world: World) -> None:
    world.slurm.queue[7] = fakes.job(7, excluded=("n2",))
    world.fill("n1", "n2")
    await world.refuse()
    assert world.excluded() == ("n1", "n2")
    assert world.slurm.queue[7].avoids == ("n1",)
    world.empty("n1", "n2")
    await world.steering.look()
    assert world.excluded() == ("n2",)


async def test_a_job_for_named_nodes_is_delayed(world: World) -> None:
    world.slurm.queue[7] = fakes.job(7, is_fixed=True)
    world.fill("n1")
    assert not await world.refuse()
    assert world.sleeping() == [7]
    world.empty("n1")
    await world.steering.look()
    assert (world.sleeping(), world.excluded()) == ([], ())


async def test_features_restrict_a_job_to_nodes_like_its_own(world: World) -> None:
    """Only Slurm knows which other nodes suit."""
    world.slurm.places = (target("n1", features=("a",)), target("n2"), target("n3", features=("a",)))
    world.slurm.queue[7] = fakes.job(7, features=True)
    world.fill("n1")
    assert await world.refuse()
    world.fill("n3")
    assert not await world.refuse()


async def test_a_gang_is_steered_if_enough_nodes_are_left(world: World) -> None:
    world.fill("n1", "n2")
    assert await world.refuse(on=("n1", "n3"))
    world.fill("n4")
    assert not await world.refuse(on=("n1", "n3"))


async def test_the_owners_later_start_time_is_kept(world: World) -> None:
    world.fill(*NODES)
    await world.refuse()
    later = dataclasses.replace(world.slurm.queue[7], begins=world.slurm.queue[7].until + 3600)
    world.slurm.queue[7] = later
    world.empty("n1")
    await world.steering.look()
    assert world.slurm.queue[7] == later
    await world.steering.recover()
    assert world.slurm.queue[7] == later


async def test_exclusions_are_lifted_if_slurm_has_no_node_left(world: World) -> None:
    """Slurm holds the job, and would not look at it again."""
    world.fill("n1", "n2", "n4")
    await world.refuse()
    world.slurm.stuck.add(7)
    world.clock.time += retries.QUEUE_SECONDS
    await world.steering.look()
    assert world.excluded() == ()


async def test_recovery_undoes_steering(world: World) -> None:
    world.fill("n1", "n2", "n4")
    await world.refuse()
    fresh = World()
    fresh.slurm.queue = world.slurm.queue
    await fresh.steering.recover()
    assert (fresh.excluded(), fresh.sleeping()) == ((), [])


async def test_exclusions_are_lifted_after_a_requeue(world: World) -> None:
    world.fill("n1", "n2", "n4")
    await world.refuse()
    started = fakes.allocation(7, on=("n3",), gpus=2)
    world.store.reserve(started)
    world.steering.admitted(started)
    world.empty("n1", "n2", "n4")
    await world.steering.look()
    assert world.excluded() == ("n1", "n2", "n4"), "a running job's list cannot be changed"
    world.store.unreserve(7)
    await world.steering.look()
    assert world.excluded() == ()


@pytest.mark.parametrize("had_waited", [False, True])
async def test_a_requeued_jobs_start_time_is_kept(world: World, had_waited: bool) -> None:
    """Started at once, slurmd would run no Epilog on nodes without a step. Only the exclusions are lifted."""
    world.fill("n1", "n2", "n4")
    await world.refuse(on=("n1", "n3"))
    started = fakes.allocation(7, on=("n2", "n3"), gpus=2)
    world.steering.admitted(started)
    requeued = dataclasses.replace(world.slurm.queue[7], avoids=("n1",), excluded=("n1",), begins=2_000)
    world.slurm.queue[7] = dataclasses.replace(requeued, until=1_000 if had_waited else 0)
    world.steering.admitted(started, ("n1",))
    world.slurm.delays.clear()
    world.empty("n1", "n2", "n4")
    await world.steering.look()
    assert (world.excluded(), world.slurm.queue[7].begins, world.slurm.delays) == ((), 2_000, {})


async def test_recovery_keeps_a_requeued_jobs_start_time(world: World) -> None:
    kept = fakes.job(7, avoids=("n1",), excluded=("n1",), begins=2_000)
    world.slurm.queue[7] = kept
    await world.steering.recover()
    assert (world.excluded(), world.slurm.queue[7].begins, world.slurm.delays) == ((), 2_000, {})


async def test_ended_jobs_are_forgotten(world: World) -> None:
    world.fill(*NODES)
    await world.refuse()
    world.slurm.queue.clear()
    world.clock.time += retries.QUEUE_SECONDS
    await world.steering.look()
    assert world.steering.waiting == {}


async def test_a_job_refused_too_often_is_only_delayed(world: World) -> None:
    """Slurm's view or ours must be wrong."""
    world.fill("n1")
    world.steering.refused(fakes.allocation(7, gpus=2), on=("n1",))
    world.slurm.queue[7] = fakes.job(7)
    assert not await world.steering.put_off(7, 60, tries=retries.MOST_TRIES + 1)
    await world.steering.look()
    assert world.slurm.delays == {7: 60}


async def test_jobs_wake_when_the_api_answers_again(world: World) -> None:
    world.slurm.queue[7] = fakes.job(7)
    world.steering.api_unavailable(7)
    await world.steering.put_off(7, 48, tries=3)
    world.pods.listed.clear()
    await world.steering.look()
    assert world.sleeping() == [7]
    world.pods.listed.set()
    await world.steering.look()
    assert world.sleeping() == []


AMOUNTS = st.lists(st.integers(0, 4), min_size=4, max_size=4)


@given(
    others=AMOUNTS,
    ours=AMOUNTS,
    gpus=st.integers(1, 4),
    count=st.integers(1, 4),
    up=st.sets(st.sampled_from(NODES)),
)
def test_enough_suitable_nodes_are_never_excluded(
    others: list[int], ours: list[int], gpus: int, count: int, up: set[str]
) -> None:
    """Slurm holds a job forever that fits on no node."""
    world = World()
    for number, name in enumerate(NODES):
        world.pods.put(fakes.pod(name, on=name, gpus=others[number]))
        world.run(100 + number, name, gpus=ours[number])
    targets = tuple(target(name, is_up=name in up) for name in NODES)
    job = fakes.allocation(7, on=NODES[:count], gpus=gpus)
    wanted = exclusions.Wanted(shares=job.shares, model=targets[:count])
    plan = exclusions.Rooms.of(world.nodes.objects, world.pods.objects.values(), world.store).plan(
        wanted, targets
    )
    left = [each.name for each in targets if each.is_up and each.name not in plan.avoids]
    assert not plan.avoids or len(left) >= count
    assert len(plan.on) in (0, count)
