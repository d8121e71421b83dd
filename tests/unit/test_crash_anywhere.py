"""penstockd is killed before or after any of its calls to Slurm or Kubernetes; the job ends the same.

The crash matrix kills at labelled steps. Here every call is a step, and every step is tried, alone and with a
second kill after it. Hooks and launchers repeat their requests, as the real ones do.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from penstock import errors
from penstock.bridge import gang, owners
from penstock.kube import kinds, podview, reflectors, types
from penstock.model import namespacepattern
from penstock.model.reasons import Outcome
from tests.unit import fakes

NODES = ("n1", "n2", "n3")
ALLOCATION = fakes.allocation(on=NODES)
JOB = ALLOCATION.identity
NAMESPACE = namespacepattern.namespace_of(asyncio.run(owners.Owners().of(JOB.uid)), fakes.SETTINGS)
RANK_0 = ("pods", NAMESPACE, "slurm-job-17")
SECRET = ("secrets", NAMESPACE, "slurm-job-17")
TRIES = 20


class Killed(BaseException):
    """A SIGKILL: not caught, nothing is cleaned up."""


class Fate:
    """How many calls each penstockd makes before it dies, and whether the last one takes effect."""

    def __init__(self, *deaths: tuple[int, bool]) -> None:
        self.deaths = list(deaths)
        self.calls = 0

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        self.calls += 1
        dies = bool(self.deaths) and self.deaths[0][0] == self.calls
        after = self.deaths.pop(0)[1] if dies else False
        if dies and not after:
            raise Killed
        yield
        if dies:
            raise Killed


class MortalKube(fakes.FakeKube):
    """The API, which outlives its clients; Secrets are collected some time after their owner pod."""

    def __init__(self, fate: Fate) -> None:
        super().__init__()
        self.fate = fate
        self.on_delete: Callable[[tuple[str, str, str]], None] = lambda key: None

    async def get(self, *args: Any, **named: Any) -> bytes:
        with self.fate.call():
            return await super().get(*args, **named)

    async def list(self, *args: Any, **named: Any) -> bytes:
        with self.fate.call():
            return await super().list(*args, **named)

    async def create(self, kind: kinds.Kind, manifest: Mapping[str, Any], **named: Any) -> bytes:
        with self.fate.call():
            return await super().create(kind, manifest, **named)

    async def run(self, *args: Any, **named: Any) -> None:
        with self.fate.call():
            await super().run(*args, **named)

    async def delete(self, kind: kinds.Kind, *, namespace: str, name: str, **named: Any) -> None:
        with self.fate.call():
            await super().delete(kind, namespace=namespace, name=name, **named)
            self.on_delete((str(kind), namespace, name))

    def garbage(self) -> set[str]:
        """Secrets whose pod is gone, by uid."""
        uids = {found["metadata"]["uid"] for (kind, _, _), found in self.objects.items() if kind == "pods"}
        kept = [found["metadata"] for (kind, _, _), found in self.objects.items() if kind == "secrets"]
        return {meta["uid"] for meta in kept if meta["ownerReferences"][0]["uid"] not in uids}

    def collect(self, garbage: set[str]) -> None:
        """Garbage collection, at any later time."""
        for key, found in list(self.objects.items()):
            if key[0] == "secrets" and found["metadata"]["uid"] in garbage:
                del self.objects[key]


class MortalSlurm(fakes.FakeSlurm):
    """slurmctld, which outlives its clients."""

    def __init__(self, fate: Fate) -> None:
        super().__init__()
        self.fate = fate

    async def live_jobs(self) -> Any:
        with self.fate.call():
            return await super().live_jobs()

    async def live_job(self, job_id: int) -> Any:
        with self.fate.call():
            return await super().live_job(job_id)

    async def details(self, job_id: int) -> Any:
        with self.fate.call():
            return await super().details(job_id)


class World:
    """What exists without penstockd, and the current penstockd."""

    def __init__(self, state: Path, fate: Fate) -> None:
        self.state, self.fate = state, fate
        self.kube, self.slurm = MortalKube(fate), MortalSlurm(fate)
        for name in NODES:
            self.kube.add_node(fakes.node(name))
        self.slurm.add(ALLOCATION)
        self.told = False
        self.refusing = 0
        """How often rank 1 is refused by its kubelet."""
        self.garbage: set[str] = set()
        self.ran: list[str] = []
        """uids of pods in which the script has begun."""
        self.boot()

    def boot(self) -> None:
        """Start a penstockd without memory. Garbage of its predecessor is collected."""
        self.kube.collect(self.garbage)
        self.garbage = self.kube.garbage()
        clock = fakes.ManualClock()
        pods = reflectors.Reflector(self.kube, kinds.PODS, types.Pod, indexes=podview.INDEXES, time=clock)
        nodes = reflectors.Reflector(self.kube, kinds.NODES, types.Node, time=clock)
        for (kind, _, _), found in self.kube.objects.items():
            if kind == "pods":
                pods.put(as_pod(found))
        nodes.objects = {f"/{name}": fakes.node(name) for name in NODES}
        for picture in (pods, nodes):
            picture.listed.set()
            picture._broken_since = None
        self.bridge = fakes.bridge(
            slurm=self.slurm,
            kube=self.kube,
            pods=pods,
            nodes=nodes,
            time=clock,
            wall_clock=lambda: 5.0,
            state_dir=str(self.state),
        )
        self.sweeper = self.bridge.sweeper
        self.kube.on_bind, self.kube.on_told = self._bound, self._told
        self.kube.on_delete = self._deleted

    def _bound(self, key: tuple[str, str, str]) -> None:
        status = fakes.running()
        if key[2].endswith("-n1") and self.refusing:
            self.refusing -= 1
            status = types.PodStatus(phase="Failed", reason="OutOfcpu", message="no cpu")
        self.bridge.context.pods._set("/".join(key[1:]), self.kube.show(key, status))

    def _told(self, key: tuple[str, str, str]) -> None:
        if key == RANK_0:
            self._script_begins()

    def _script_begins(self) -> None:
        """Requires a complete gang that knows its names, a launcher that was told, and its own Secret."""
        self.ran.append(self.kube.objects[RANK_0]["metadata"]["uid"])
        self.kube.collect(self.kube.garbage())
        assert self.told, "the launcher would ask for another gang"
        assert SECRET in self.kube.objects, "the script has gone with another pod's Secret"
        others = [found for key, found in self.kube.objects.items() if key[0] == "pods" and key != RANK_0]
        assert [found["status"]["phase"] for found in others] == ["Running"] * (len(NODES) - 1)
        assert all("hosts" in found for found in others)

    def _deleted(self, key: tuple[str, str, str]) -> None:
        name = "/".join(key[1:])
        if key[0] == "pods" and name in self.bridge.context.pods.objects:
            self.bridge.context.pods.gone(self.bridge.context.pods.objects[name])

    async def insist(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Repeat until there is an answer, as hooks and launchers do."""
        for _ in range(TRIES):
            try:
                return await ask()
            except Killed:
                self.boot()
                with contextlib.suppress(Killed):
                    await self.sweeper.recover()
            except errors.KubeUnavailable:
                self.kube.collect(self.kube.garbage())
        raise AssertionError("it never ends")

    async def tell(self) -> None:
        """The launcher hears that the script may run, unless penstockd dies first."""
        with self.fate.call():
            self.told = True

    async def launch(self) -> tuple[types.Pod, ...]:
        if self.told:
            return await self.bridge.launching.attach(ALLOCATION, fakes.REQUEST)
        return await self.bridge.launching.launch(ALLOCATION, fakes.REQUEST, self.tell)

    async def settle(self) -> None:
        """The job has ended in Slurm, and the sweeper has run often enough."""
        self.slurm.live.clear()
        for _ in range(4):
            await self.insist(self.sweeper.sweep)

    def records(self, folder: str) -> list[str]:
        return sorted(path.name for path in (self.state / folder).iterdir())


def as_pod(found: dict[str, Any]) -> types.Pod:
    return msgspec.json.decode(msgspec.json.encode(found), type=types.Pod)


@contextlib.asynccontextmanager
async def a_world(*deaths: tuple[int, bool]) -> AsyncIterator[World]:
    with tempfile.TemporaryDirectory() as state:
        yield World(Path(state), Fate(*deaths))


async def live(world: World) -> None:
    """A job from admission until nothing is left of it."""
    assert await world.insist(lambda: fakes.admit(world.bridge, JOB)) == ()
    made = await world.insist(world.launch)
    others = [f"slurm-job-17-n{rank}" for rank in range(1, len(NODES))]
    assert [pod.metadata.name for pod in made] == ["slurm-job-17", *others]
    assert world.ran == [made[0].metadata.uid], "the script ran twice, or not at all"
    await world.insist(lambda: world.bridge.sessions.ending.record(JOB, Outcome(exit_code=3), made))
    for node in NODES:
        await world.insist(lambda node=node: world.bridge.releasing.release(17, node))  # type: ignore[misc]  # bound now
        assert not [key for key in world.kube.names("pods") if world_node(world, key) == node]
    await check_nothing_left(world)


def world_node(world: World, name: str) -> str:
    node: str = world.kube.objects["pods", NAMESPACE, name]["spec"].get("nodeName", "")
    return node


async def check_nothing_left(world: World) -> None:
    await world.settle()
    assert world.kube.names("pods") == []
    assert fakes.reserved(world.bridge) == ()
    assert (world.records("running"), world.records("ended")) == ([], ["17-0.json"])


async def refused_once(world: World) -> None:
    """A gang of which a kubelet rejects one pod: the outcome survives all deaths."""
    world.refusing = 2 * TRIES
    assert await world.insist(lambda: fakes.admit(world.bridge, JOB)) == ()
    with pytest.raises(gang.GangRefused, match="OutOfcpu") as caught:
        await world.insist(world.launch)
    assert caught.value.outcome.requeue
    assert (world.told, world.ran) == (False, [])
    for node in NODES:
        await world.insist(lambda node=node: world.bridge.releasing.release(17, node))  # type: ignore[misc]  # bound now
    await check_nothing_left(world)


async def accepted_at_second_try(world: World) -> None:
    """The kubelet rejects once, penstockd dies before it can tell, and the next try is a whole gang."""
    world.refusing = 1
    assert await world.insist(lambda: fakes.admit(world.bridge, JOB)) == ()
    with contextlib.suppress(gang.GangRefused):
        made = await world.insist(world.launch)
        assert world.ran == [made[0].metadata.uid]
    for node in NODES:
        await world.insist(lambda node=node: world.bridge.releasing.release(17, node))  # type: ignore[misc]  # bound now
    await check_nothing_left(world)


LIVES = (live, refused_once, accepted_at_second_try)


async def calls_of(life: Callable[[World], Awaitable[None]]) -> int:
    async with a_world() as world:
        await life(world)
        return world.fate.calls


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
async def test_one_death_at_every_call(life: Callable[[World], Awaitable[None]]) -> None:
    """Before and after it."""
    for call in range(1, await calls_of(life) + 1):
        for after in (False, True):
            async with a_world((call, after)) as world:
                await life(world)
                assert world.fate.deaths == []


@settings(max_examples=60)
@given(
    life=some.sampled_from(LIVES),
    gaps=some.lists(some.tuples(some.integers(1, 25), some.booleans()), min_size=2, max_size=4),
)
def test_several_deaths(life: Callable[[World], Awaitable[None]], gaps: list[tuple[int, bool]]) -> None:
    """Also during recovery."""

    async def run() -> tuple[int, int]:
        first = 1 + (gaps[0][0] - 1) % await calls_of(life)
        moments = itertools.accumulate((first, *(gap for gap, _ in gaps[1:])))
        deaths = list(zip(moments, (after for _, after in gaps), strict=True))
        async with a_world(*deaths) as world:
            await life(world)
            return len(deaths), len(world.fate.deaths)

    planned, still_to_come = asyncio.run(run())
    assert still_to_come < planned, "nobody died"
