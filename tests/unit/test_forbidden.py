"""What an API server that forbids everything for a while does to jobs: nothing, if it has just started."""

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


async def test_an_api_that_comes_back_and_forbids_for_a_moment_ends_nobodys_job(world: World) -> None:
    """The time that it was away is none of the time for which it forbids."""
    world.run(7)
    away, forbids = [errors.KubeUnavailable("no answer")] * 30, [FORBIDDEN] * 3
    world.kube.refuse = test_sessions.RunsOut(("create", "pods"), itertools.chain(away, forbids))
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7)
    assert await peer.hear() == [b"started"]
    assert world.clock.now() > 1100


async def test_the_first_refusal_after_a_long_launch_is_not_taken_for_the_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods of other ranks may take minutes to start; the API server may have been restarted meanwhile."""
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


async def test_a_pod_that_may_not_be_looked_at_is_not_a_job_that_did_not_start(world: World) -> None:
    """It runs, however long nobody may look: the launcher that comes again is not told of an end."""
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


async def test_a_signal_waits_for_an_api_that_forbids_for_a_moment(world: World) -> None:
    """Slurm sends it once: given up, the script would never hear of it."""
    world.run(7)
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7)
    assert await peer.hear() == [b"started"]
    world.end(fakes.running())
    world.kube.refuse = test_sessions.RunsOut(("run", "pods"), iter([FORBIDDEN] * 5))
    peer.send("signal", "number", "10", "everyone", "0")
    assert await peer.hear() == [b"delivered"]
    assert [words[-1] for words in world.kube.commands] == ["kill -USR1 1"]


async def test_a_signal_that_is_forbidden_for_good_is_given_up(world: World) -> None:
    """Those that come after it get their turn; but the end of a job is tried for as long as it takes."""
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


async def test_output_is_not_given_up_while_the_api_forbids_for_a_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other failures of the command in the container count, this one hardly."""
    monkeypatch.setattr(joboutput, "AT_ONCE", 0.001)
    monkeypatch.setattr(joboutput, "LONGEST", 0.001)
    world.run(7)
    world.kube.refuse = test_sessions.RunsOut(("stream", "pods"), iter([FORBIDDEN] * (2 * joboutput.TRIES)))
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7, stdout="/home/o")
    assert await peer.hear() == [b"started"]
    assert await peer.hear() == [b"sync"]
