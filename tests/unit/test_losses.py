"""Pods and requeues that were lost while penstockd or slurmctld was down."""

from __future__ import annotations

import pytest

from penstock import errors
from penstock.bridge import slurmcalls
from penstock.kube import types
from tests.unit import fakes, test_sessions
from tests.unit.test_sessions import World

world = test_sessions.world


async def test_a_pod_lost_with_its_node_unseen_is_requeued(world: World) -> None:
    world.run(7)
    del world.kube.objects["nodes", "", "n1"]
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7, attach="1")
    assert await peer.hear() == [b"note", b"the pod's node is gone from Kubernetes"]
    await test_sessions.until(lambda: world.slurm.requeued == [7])


@pytest.mark.parametrize("refusal", [errors.KubeUnavailable("no answer"), errors.KubeError("no")])
async def test_no_outcome_without_an_answer_about_the_node(world: World, refusal: errors.KubeError) -> None:
    """The launcher is told to ask again."""
    world.run(7)
    world.kube.refuse["get", "nodes"] = refusal
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7, attach="1")
    assert await peer.hear() == [b"wait"]


@pytest.mark.parametrize("forgets", [True, False])
async def test_a_requeue_that_slurmctld_lost_is_repeated(world: World, forgets: bool) -> None:
    """Otherwise the launcher would wait until the job's time limit."""
    world.run(7)
    world.slurm.forgets = forgets
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7)
    assert await peer.hear() == [b"started"]
    world.end(types.PodStatus(phase="Failed", reason="NodeShutdown", message="bye"))
    assert await peer.hear() == [b"note", b"NodeShutdown: bye"]
    await test_sessions.until(lambda: world.clock.now() > 2000)
    assert world.slurm.requeued == ([7, 7] if forgets else [7])


async def test_an_old_launcher_does_not_requeue_the_next_attempt(world: World) -> None:
    """slurmd may not have killed it yet when the next attempt runs on other nodes."""
    world.run(7)
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7)
    assert await peer.hear() == [b"started"]
    world.end(types.PodStatus(phase="Failed", reason="NodeShutdown", message="bye"))
    await test_sessions.until(lambda: world.slurm.requeued == [7])
    world.slurm.add(fakes.allocation(7, restart=1))
    await test_sessions.until(lambda: world.clock.now() > 2000)
    assert world.slurm.requeued == [7]


@pytest.mark.parametrize(("tries", "told"), [(3, True), (10**6, False)])
async def test_the_comment_waits_for_the_jobs_database_index(world: World, tries: int, told: bool) -> None:
    """slurmctld changes no job whose record has none. It may never get one, which must not delay the job's
    end.
    """
    left, answer = iter(range(tries)), world.slurm.set_comment

    async def not_yet(job_id: int, text: str) -> None:
        if next(left, None) is not None:
            raise errors.SlurmNotYet("scontrol: the DB index is being set")
        await answer(job_id, text)

    world.slurm.set_comment = not_yet  # type: ignore[method-assign]  # as a slurmctld without slurmdbd
    world.run(7)
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7)
    await peer.hear()
    began = world.clock.now()
    world.end(fakes.ended(126, message="penstock: no cat\n"))
    assert await peer.hear() == [b"note", b"no cat"]
    assert await peer.hear() == [b"exit", b"126"]
    assert world.slurm.comments == ({7: "no cat"} if told else {})
    assert world.clock.now() - began < slurmcalls.NUMBER_SECONDS + 10
