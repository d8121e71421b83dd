"""--no-requeue is about running again: until its script begins, any job may be requeued."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock import errors
from penstock.kube import types
from tests.unit import fakes, test_sessions
from tests.unit.test_sessions import World

JOB = 7


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with test_sessions.served(tmp_path / "s") as made:
        made.run(JOB)
        yield made


def say(world: World, requeue: bool | None) -> None:
    """Set the job's --requeue option."""
    world.slurm.allocations[JOB] = dataclasses.replace(world.slurm.allocations[JOB], requeue=requeue)


async def start(world: World) -> test_sessions.Peer:
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, JOB)
    return peer


@pytest.mark.parametrize(
    ("said", "by_default", "fixed"),
    [(False, True, True), (True, False, False), (None, True, False), (None, False, True)],
)
async def test_requeue_option_applies_from_the_scripts_start(
    world: World, said: bool | None, by_default: bool, fixed: bool
) -> None:
    """Without one, JobRequeue does."""
    say(world, said)
    world.slurm.by_default = by_default
    peer = await start(world)
    assert await peer.hear() == [b"started"]
    assert (JOB in world.slurm.never_again) is fixed


async def test_a_job_that_has_begun_is_not_requeued(world: World) -> None:
    say(world, False)
    peer = await start(world)
    await peer.hear()
    world.end(
        types.PodStatus(
            phase="Failed", reason="Evicted", container_statuses=fakes.running().container_statuses
        )
    )
    assert await peer.hear() == [b"note", b"Evicted"]
    assert await peer.hear() == [b"exit", b"1"]
    assert world.slurm.requeued == []


async def test_a_job_rejected_by_the_kubelet_is_requeued(world: World) -> None:
    """Its script has not begun."""
    say(world, False)
    peer = await start(world)
    await peer.hear()
    world.end(types.PodStatus(phase="Failed", reason="OutOfcpu"))
    assert await peer.hear() == [b"note", b"OutOfcpu"]
    await test_sessions.until(lambda: world.slurm.requeued == [JOB])


async def test_a_job_whose_node_leaves_before_its_start_is_requeued(world: World) -> None:
    say(world, False)
    world.slurm.never_again.add(JOB)  # a penstockd that was killed before the start had said so already
    world.bridge.context.nodes.objects.clear()
    world.kube.refuse["get", "nodes"] = errors.KubeNotFound("no such node")
    peer = await start(world)
    assert (await peer.hear())[0] == b"note"
    await test_sessions.until(lambda: world.slurm.requeued == [JOB])


async def test_a_reattached_launcher_without_pods_is_not_requeued(world: World) -> None:
    """It was told of the start: the script may have run."""
    say(world, False)
    world.slurm.never_again.add(JOB)
    world.bridge.context.nodes.objects.clear()
    world.kube.objects = {key: value for key, value in world.kube.objects.items() if key[0] != "nodes"}
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, JOB, attach="1")
    assert (await peer.hear())[0] == b"note"
    assert await peer.hear() == [b"exit", b"1"]
    assert world.slurm.requeued == []


async def test_a_requeue_option_changed_while_waiting_is_kept(world: World) -> None:
    """Slurm would cancel the job at the next refusal."""
    world.slurm.allocations[JOB] = dataclasses.replace(world.slurm.allocations[JOB], may_go_back=False)
    world.slurm.never_again.add(JOB)
    await fakes.admit(world.bridge, fakes.identity(JOB, uid=test_sessions.UID))
    assert world.slurm.allocations[JOB].requeue is False
    assert world.slurm.never_again == set()
