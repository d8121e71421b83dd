"""Fetching output when commands in the container fail."""

from __future__ import annotations

import asyncio

import pytest

from penstock import errors
from penstock.bridge import joboutput
from tests.unit import fakes, test_sessions
from tests.unit.test_sessions import World

world = test_sessions.world


async def test_the_agent_is_told_despite_repeated_failures(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that exhausts memory or processes of its container blocks execs for a while; an agent that is
    never told would wait until the job's time limit.
    """
    monkeypatch.setattr(joboutput, "AT_ONCE", 0.001)
    monkeypatch.setattr(joboutput, "LONGEST", 0.001)
    world.run(7)
    fails = [errors.KubeError("a command in pod p failed: cannot fork")] * (3 * joboutput.TRIES)
    world.kube.refuse = test_sessions.RunsOut(("run", "pods"), iter(fails))
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7, stdout="/home/o")
    assert await peer.hear() == [b"started"]
    assert await peer.hear() == [b"sync"]
    peer.send("synced")
    await test_sessions.until(lambda: any("collected" in words[-1] for words in world.kube.commands))


async def test_log_requests_back_off(world: World) -> None:
    """Pulling an image may take minutes."""
    world.run(7)
    world.kube.refuse["log", "pods"] = errors.KubeError("container is waiting to start", status=400)
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7, stdout="/home/o", script=b"#!/x\n#K8S_COMMAND=@entrypoint\n")
    assert await peer.hear() == [b"started"]
    await test_sessions.until(lambda: [call[0] for call in world.kube.calls].count("log") > 100)
    assert world.clock.now() > 1400


async def test_a_404_for_a_log_before_the_pods_start_is_retried(world: World) -> None:
    """The API answers 404 for a moment after the binding."""
    world.run(7)
    unknown = iter([errors.KubeNotFound("pod not found", status=404)] * 3)
    world.kube.refuse = test_sessions.RunsOut(("log", "pods"), unknown)
    world.kube.logs = [b"hello"]
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7, stdout="/home/o", script=b"#!/x\n#K8S_COMMAND=@entrypoint\n")
    assert await peer.hear() == [b"started"]
    assert await peer.hear() == [b"output", b"hello", b"1"]


async def test_a_job_ends_without_the_log_of_a_deleted_pod(world: World) -> None:
    world.run(7)
    world.kube.refuse["log", "pods"] = errors.KubeNotFound("pod not found", status=404)
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7, stdout="/home/o", script=b"#!/x\n#K8S_COMMAND=@entrypoint\n")
    assert await peer.hear() == [b"started"]
    world.end(fakes.ended(3))
    async with asyncio.timeout(10):
        assert await peer.hear() == [b"exit", b"3"]


async def test_unreadable_output_is_given_up_with_a_note(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example on a full disk: the job ends as its script did, instead of at its time limit."""
    monkeypatch.setattr(joboutput, "AT_ONCE", 0.001)
    monkeypatch.setattr(joboutput, "LONGEST", 0.001)
    world.run(7)
    world.kube.refuse["stream", "pods"] = errors.KubeError("a command in pod p failed: no space left")
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7, stdout="/home/o")
    assert await peer.hear() == [b"started"]
    async with asyncio.timeout(10):
        assert await peer.hear() == [b"note", joboutput.GIVEN_UP.encode()]
        assert await peer.hear() == [b"sync"]
