"""All pods of a gang are told each other's names before its script starts."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import msgspec
import pytest

from penstock import errors
from penstock.bridge import gang, introductions
from penstock.kube import kinds, podview, reflectors, types
from penstock.model import jobs
from penstock.model.jobspec import PodSpec
from penstock.model.podpolicy import PodPolicy
from penstock.model.reasons import OutcomeKind
from tests.unit import fakes

NODES = ("n1", "n2", "n3")
GANG = fakes.allocation(on=NODES)
FIRST, SECOND, THIRD = "slurm-job-17", "slurm-job-17-n1", "slurm-job-17-n2"
ENTRYPOINT = dataclasses.replace(fakes.REQUEST, pod=PodSpec(own_entrypoint=True))


def status(name: str, *, init: bool = False) -> types.PodStatus:
    """A pod that runs, or whose init container does, with an address of its own."""
    number = 1 if name == FIRST else 1 + int(name.rpartition("n")[2])
    running = msgspec.structs.replace(fakes.running(), pod_ip=f"10.0.0.{number}")
    if not init:
        return running
    state = types.ContainerState(running=types.Running())
    inits = [types.ContainerStatus(name="names", state=state)]
    return msgspec.structs.replace(
        running, phase="Pending", container_statuses=[], init_container_statuses=inits
    )


class World:
    """A bridge whose pods run when they are bound, or when their Secret is made if nobody binds them."""

    def __init__(self, policy: PodPolicy = fakes.SETTINGS, *, own_entrypoint: bool = False) -> None:
        self.kube, time = fakes.FakeKube(), fakes.ManualClock()
        pods = reflectors.Reflector(self.kube, kinds.PODS, types.Pod, indexes=podview.INDEXES, time=time)
        nodes = reflectors.Reflector(self.kube, kinds.NODES, types.Node, time=time)
        for name in NODES:
            nodes.put(fakes.node(name))
        slurm = fakes.FakeSlurm()
        slurm.add(GANG)
        self.bridge = fakes.bridge(
            slurm=slurm, kube=self.kube, pods=pods, nodes=nodes, time=time, start_timeout=5
        )
        self.bridge.context.settings = policy
        self.bridge.context.store.reserve(GANG)
        self.own_entrypoint = own_entrypoint
        self.request = ENTRYPOINT if own_entrypoint else fakes.REQUEST
        self.told: list[str] = []
        self.kube.on_bind = self.run
        self.kube.on_told = lambda key: self.told.append(key[2])

    def run(self, key: tuple[str, str, str]) -> None:
        waits = self.own_entrypoint and key[2] == FIRST
        self.set(key[2], status(key[2], init=waits))

    def set(self, name: str, new: types.PodStatus) -> None:
        key = ("pods", "user-alice", name)
        self.bridge.context.pods._set(f"user-alice/{name}", self.kube.show(key, new))

    async def create(self, allocation: jobs.Allocation = GANG) -> tuple[types.Pod, ...]:
        plan = gang.Plan(allocation=allocation, owner=fakes.OWNER, request=self.request)

        async def started() -> None:
            self.told.append("launcher")

        return await self.bridge.launching._maker.create(plan, started)

    async def attach(self) -> tuple[types.Pod, ...]:
        return await self.bridge.launching.attach(GANG, self.request)

    async def called(self, call: tuple[str, str, str]) -> None:
        """Wait for a request."""
        async with asyncio.timeout(5):
            while call not in self.kube.calls:  # noqa: ASYNC110  # the fake has no event
                await asyncio.sleep(0)

    def hosts(self, name: str) -> Any:
        return self.kube.objects["pods", "user-alice", name].get("hosts")


async def test_every_pod_is_told_the_others() -> None:
    """Rank 0 last, after the launcher: its agent then starts the script."""
    world = World()
    await world.create()
    assert world.told == [SECOND, THIRD, "launcher", FIRST]
    assert world.hosts(FIRST) == ("job", "10.0.0.2 n2\n10.0.0.3 n3\n.\n")
    assert world.hosts(SECOND) == ("job", "10.0.0.1 n1\n10.0.0.3 n3\n.\n")
    assert world.hosts(THIRD) == ("job", "10.0.0.1 n1\n10.0.0.2 n2\n.\n")


async def test_lone_job_and_the_nodes_network_cost_no_exec() -> None:
    """Their names are the kubelet's or the site's. There rank 0 is bound last, so that it starts last."""
    lone, host = World(), World(fakes.policy("gpu", network="host"))
    await lone.create(fakes.allocation(on=("n1",)))
    await host.create()
    for world in (lone, host):
        assert world.told == ["launcher"]
        assert "run" not in {verb for verb, _, _ in world.kube.calls}
    assert [name for verb, _, name in host.kube.calls if verb == "bind"] == [SECOND, THIRD, FIRST]


async def test_entrypoint_of_an_image_starts_when_its_init_container_is_told() -> None:
    world = World(own_entrypoint=True)
    await world.create()
    assert world.told == [SECOND, THIRD, "launcher", FIRST]
    assert world.hosts(FIRST)[0] == "names"


async def test_mode_trust_tells_names_too() -> None:
    """The launcher hears of the start when all run, not with the Secret."""
    world = World(fakes.policy("gpu", mode="trust"))
    creating = asyncio.create_task(world.create())
    await world.called(("create", "secrets", FIRST))
    assert world.told == []
    for name in (FIRST, SECOND, THIRD):
        world.set(name, status(name))
    await creating
    assert world.told == [SECOND, THIRD, "launcher", FIRST]


async def test_pod_without_an_address_is_waited_for() -> None:
    """Its status may come in two parts."""
    world = World()
    world.kube.on_bind = lambda key: world.set(
        key[2],
        msgspec.structs.replace(status(key[2]), pod_ip="" if key[2] == THIRD else status(key[2]).pod_ip),
    )
    creating = asyncio.create_task(world.create())
    await world.called(("bind", "pods", FIRST))
    await asyncio.sleep(0.05)
    assert world.told == []
    world.set(THIRD, status(THIRD))
    await creating
    assert world.hosts(FIRST)[1] == "10.0.0.2 n2\n10.0.0.3 n3\n.\n"


@pytest.mark.parametrize("error", [errors.KubeUnavailable("no answer"), errors.KubeNotAllowed("may not")])
async def test_api_errors_are_tried_again(error: Exception) -> None:
    """The next try tells those that were not told; the pods stay."""
    world = World()
    world.kube.refuse["run", "pods"] = error
    with pytest.raises(type(error)):
        await world.create()
    world.kube.refuse.clear()
    made = await world.create()
    assert [pod.metadata.uid for pod in made] == ["uid-3", "uid-4", "uid-5"]
    assert sorted(world.told) == sorted([SECOND, THIRD, "launcher", FIRST])


async def test_failed_command_is_explained_by_the_pods_end() -> None:
    """A container that ends takes the command along."""
    world = World()
    world.kube.refuse["run", "pods"] = errors.KubeError("exit status 137")
    creating = asyncio.create_task(world.create())
    await world.called(("run", "pods", THIRD))
    world.set(THIRD, msgspec.structs.replace(fakes.ended(137, reason="OOMKilled"), pod_ip="10.0.0.3"))
    world.set(SECOND, msgspec.structs.replace(fakes.ended(143), pod_ip="10.0.0.2"))
    with pytest.raises(gang.GangRefused, match="rank 1 on n2") as caught:
        await creating
    assert caught.value.outcome.kind is OutcomeKind.RANK_ENDED
    assert world.kube.names("pods") == []


async def test_failed_command_of_a_running_pod_fails_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk."""
    monkeypatch.setattr(introductions, "END_SECONDS", 0.1)
    world = World()
    world.kube.refuse["run", "pods"] = errors.KubeError("exit status 1")
    with pytest.raises(gang.GangRefused, match="cannot be written to /etc/hosts: exit status 1") as caught:
        await world.create()
    assert (caught.value.outcome.kind, caught.value.outcome.requeue) == (OutcomeKind.AGENT_FAILED, False)
    assert world.told == []


@pytest.mark.parametrize("own_entrypoint", [False, True])
async def test_restarted_penstockd_tells_whom_the_last_one_did_not(own_entrypoint: bool) -> None:
    """It was killed after the launcher was told."""
    world = World(own_entrypoint=own_entrypoint)
    await world.create()
    del world.kube.objects["pods", "user-alice", FIRST]["hosts"]
    made = await world.attach()
    assert [pod.metadata.name for pod in made] == [FIRST, SECOND, THIRD]
    assert world.hosts(FIRST)[1] == "10.0.0.2 n2\n10.0.0.3 n3\n.\n"
    assert world.told == [SECOND, THIRD, "launcher", FIRST, FIRST]


@pytest.mark.parametrize("own_entrypoint", [False, True])
async def test_restarted_penstockd_asks_a_running_gang_once_at_most(own_entrypoint: bool) -> None:
    """An entrypoint that runs was let go; an agent's pod is asked, unless it has ended."""
    world = World(own_entrypoint=own_entrypoint)
    await world.create()
    world.set(FIRST, status(FIRST))
    world.kube.calls.clear()
    await world.attach()
    assert len([verb for verb, _, _ in world.kube.calls if verb == "run"]) == (0 if own_entrypoint else 1)
    world.set(FIRST, fakes.ended(3))
    world.kube.calls.clear()
    assert (await world.attach())[0].metadata.name == FIRST
    assert "run" not in {verb for verb, _, _ in world.kube.calls}


async def test_gang_of_an_older_penstockd_is_left_alone() -> None:
    """Its pods have no init container, and nothing waits in them."""
    world = World()
    await world.create()
    for name in (FIRST, SECOND, THIRD):
        world.kube.objects["pods", "user-alice", name]["spec"].pop("initContainers")
    world.kube.calls.clear()
    await world.attach()
    assert "run" not in {verb for verb, _, _ in world.kube.calls}
