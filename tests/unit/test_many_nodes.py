"""Jobs of several nodes: Slurm takes each node back by itself."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from penstock import errors
from penstock.bridge import gang, jobstore
from penstock.kube import kinds
from penstock.model import jobs
from tests.unit import fakes
from tests.unit.test_bridge import World, world

__all__ = ["world"]  # pytest finds the fixture by its name

TWO = fakes.allocation(1, on=("n1", "n2"))


def running(world: World, allocation: jobs.Allocation) -> None:
    """Pods, one on each node."""
    world.bridge.context.store.reserve(allocation)
    for rank, share in enumerate(allocation.shares):
        name = f"slurm-job-1-n{rank}" if rank else "slurm-job-1"
        world.add_pod(
            fakes.pod(name, on=share.node, job=allocation.identity, rank=rank, status=fakes.running())
        )


async def test_release_of_another_node_does_not_end_the_script(world: World) -> None:
    """Its Epilog deletes that node's pod; the job still ends with its script."""
    running(world, TWO)
    gang = tuple(world.bridge.context.pods.objects.values())
    end = asyncio.create_task(
        world.bridge.follower.end_of(gang, lambda: world.bridge.context.store.is_leaving(1))
    )
    await asyncio.sleep(0)
    await world.bridge.releasing.release(1, "n2")
    world.bridge.context.pods._drop("default/slurm-job-1-n1", gang[1])
    await asyncio.sleep(0.05)
    assert not end.done()
    world.bridge.context.pods._set("default/slurm-job-1", fakes.pod("slurm-job-1", status=fakes.ended(3)))
    assert (await end).exit_code == 3


def test_leaving_is_reset_by_the_next_attempt() -> None:
    """Not by a launcher that reconnects."""
    reserved = jobstore.Store(lambda: 5.0)
    reserved.leave(1, "n1")
    assert not reserved.is_leaving(1)
    reserved.reserve(TWO)
    reserved.leave(1, "n9")
    assert not reserved.is_leaving(1), "a node of an earlier attempt, which came back"
    reserved.leave(1, "n2")
    reserved.release(1, "n2")
    reserved.reserve(dataclasses.replace(TWO, shares=TWO.shares[:1]))
    assert reserved.is_leaving(1)
    assert (reserved.holds(1, "n1"), reserved.holds(1, "n2"), reserved.holds(2, "n1")) == (True, False, False)
    reserved.reserve(fakes.allocation(1, restart=1))
    assert not reserved.is_leaving(1)


async def test_trusted_pods_are_removed_with_rank_0s_node(world: World) -> None:
    """Not with the first node that Slurm takes back."""
    world.bridge.context.settings = fakes.policy("open", mode="trust")
    running(world, dataclasses.replace(TWO, partition="open"))
    await world.bridge.releasing.release(1, "n2")
    assert world.kube.names("pods") == ["slurm-job-1", "slurm-job-1-n1"]
    await world.bridge.releasing.release(1, "n1")
    assert world.kube.names("pods") == []


async def test_no_pod_is_bound_to_a_released_node(world: World) -> None:
    """Its Epilog ran before the pod was created."""
    world.bridge.context.store.reserve(TWO)
    await world.bridge.releasing.release(1, "n2")
    with pytest.raises(gang.GangRefused, match="taken node n2 back"):
        await asyncio.wait_for(world.bridge.launching.launch(TWO, fakes.REQUEST, fakes.nobody), 5)
    assert world.kube.names("pods") == []
    assert not [call for call in world.kube.calls if call[0] == "bind"]


async def test_a_drain_stays_while_the_job_ends_on_another_node(world: World) -> None:
    """The job's reservation is on the other node."""
    running(world, TWO)
    drainer = fakes.drainer(world.bridge)
    await drainer.abandon(1, "n2")
    await drainer.lift()
    assert set(world.slurm.reasons) == {"n2"}


async def test_trusted_pods_do_not_keep_a_node_drained(world: World) -> None:
    world.bridge.context.settings = fakes.policy("open", mode="trust")
    running(world, dataclasses.replace(TWO, partition="open", shares=TWO.shares[:1]))
    world.add_pod(fakes.pod("slurm-job-1-n9", on="n2", job=TWO.identity, status=fakes.running()))
    drainer = fakes.drainer(world.bridge)
    await drainer.abandon(2, "n2")
    await drainer.lift()
    assert world.slurm.reasons == {}


async def test_a_failed_resume_does_not_affect_other_nodes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node may have left slurm.conf."""
    drainer = fakes.drainer(world.bridge)
    for node in ("n1", "n2"):
        await drainer.abandon(1, node)
    resume = world.slurm.resume

    async def not_the_first(node: str) -> None:
        if node == "n1":
            raise errors.SlurmError("Invalid node name specified")
        await resume(node)

    monkeypatch.setattr(world.slurm, "resume", not_the_first)
    await drainer.lift()
    assert set(world.slurm.reasons) == {"n1"}


async def test_an_undeletable_orphan_does_not_keep_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook may protect it."""
    for number in (2, 3):
        world.add_pod(fakes.pod(f"orphan-{number}", job=fakes.identity(number)))
    delete = world.kube.delete

    async def protected(kind: kinds.Kind, *, name: str, **how: object) -> None:
        if name == "orphan-2":
            raise errors.KubeError("admission webhook denied the request")
        await delete(kind, name=name, **how)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(world.kube, "delete", protected)
    for _ in range(2):
        await world.sweeper.sweep()
    assert world.kube.names("pods") == ["orphan-2"]
