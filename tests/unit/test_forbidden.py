"""A 403 is temporary at first: an API server that has just started forbids everything."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from penstock import errors
from penstock.bridge import joboutput
from tests.unit import fakes, test_sessions
from tests.unit.test_sessions import World

world = test_sessions.world
FORBIDDEN = errors.KubeNotAllowed('User "p" cannot get resource "pods"')


async def forbidden(*command: object, **where: object) -> None:
    raise FORBIDDEN


async def test_a_403_after_an_outage_ends_no_job(world: World) -> None:
    """The outage does not count towards the time of 403s."""
    world.run(7)
    away, forbids = [errors.KubeUnavailable("no answer")] * 30, [FORBIDDEN] * 3
    world.kube.refuse = test_sessions.RunsOut(("create", "pods"), itertools.chain(away, forbids))
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7)
    assert await peer.hear() == [b"started"]
    assert world.clock.now() > 1100


async def test_the_first_403_after_a_long_launch_is_retried(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other ranks' pods may take minutes to start; the API server may have been restarted meanwhile."""
    world.run(7)
    world.bridge.context.store.reserve(await world.bridge.launching.allocation_for(7, test_sessions.UID))
    make = world.bridge.launching.launch
    waits = iter([40.0, 0.0, 0.0])

    async def slow(*words: Any) -> Any:
        for seconds in waits:
            await world.clock.sleep(seconds)
            raise FORBIDDEN
        return await make(*words)

    monkeypatch.setattr(world.bridge.launching, "launch", slow)
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7)
    assert await peer.hear() == [b"started"]


async def test_a_forbidden_get_ends_no_attached_job(world: World) -> None:
    world.run(7)
    first = await test_sessions.connect(world)
    test_sessions.launch(first, 7)
    assert await first.hear() == [b"started"]
    first.writer.close()
    world.kube.refuse = test_sessions.RunsOut(("get", "pods"), iter([FORBIDDEN] * 30))
    again = await test_sessions.connect(world)
    test_sessions.launch(again, 7, attach="1")
    assert await again.hear() == [b"started"]
    assert world.clock.now() > 1100


async def test_a_signal_is_retried_after_a_403(world: World) -> None:
    """Slurm sends a signal only once."""
    world.run(7)
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7)
    assert await peer.hear() == [b"started"]
    world.end(fakes.running())
    world.kube.refuse = test_sessions.RunsOut(("run", "pods"), iter([FORBIDDEN] * 5))
    peer.send("signal", "number", "10", "everyone", "0")
    assert await peer.hear() == [b"delivered"]
    assert [words[-1] for words in world.kube.commands] == ["kill -USR1 1"]


async def test_a_signal_is_given_up_after_persistent_403s(world: World) -> None:
    """Later signals are delivered; a SIGTERM is tried without limit."""
    world.run(7)
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7)
    assert await peer.hear() == [b"started"]
    world.end(fakes.running())
    world.kube.refuse["run", "pods"] = FORBIDDEN
    before = world.clock.now()
    peer.send("signal", "number", "10", "everyone", "0")
    assert await peer.hear() == [b"delivered"]
    assert 30 <= world.clock.now() - before < 60
    world.kube.refuse = test_sessions.RunsOut(("delete", "pods"), iter([FORBIDDEN] * 100))
    world.kube.run = forbidden  # type: ignore[method-assign]
    peer.send("signal", "number", "15", "everyone", "1")
    assert await peer.hear() == [b"delivered"]
    assert world.clock.now() > before + 80
    assert [key for key in world.kube.objects if key[0] == "pods"] == []


async def test_403s_hardly_count_as_failures_of_output(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joboutput, "AT_ONCE", 0.001)
    monkeypatch.setattr(joboutput, "LONGEST", 0.001)
    world.run(7)
    world.kube.refuse = test_sessions.RunsOut(("stream", "pods"), iter([FORBIDDEN] * (2 * joboutput.TRIES)))
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7, stdout="/home/o")
    assert await peer.hear() == [b"started"]
    assert await peer.hear() == [b"sync"]
