"""What an API server that forbids everything for a while does to jobs: nothing, if it has just started."""

from __future__ import annotations

import itertools

from penstock import errors
from tests.unit import test_sessions
from tests.unit.test_sessions import World

world = test_sessions.world
FORBIDDEN = errors.KubeNotAllowed('User "p" cannot get resource "pods"')


async def test_an_api_that_comes_back_and_forbids_for_a_moment_ends_nobodys_job(world: World) -> None:
    """The time that it was away is none of the time for which it forbids."""
    world.run(7)
    away, forbids = [errors.KubeUnavailable("no answer")] * 30, [FORBIDDEN] * 3
    world.kube.refuse = test_sessions.RunsOut(("create", "pods"), itertools.chain(away, forbids))
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7)
    assert await peer.hear() == [b"started"]
    assert world.clock.now() > 1100


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
