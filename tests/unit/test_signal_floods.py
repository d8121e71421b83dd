"""Signals that come faster than they can be delivered: they wait, but not all of them."""

from __future__ import annotations

import asyncio

import pytest

from penstock.daemon import launches
from penstock.model import jobs
from tests.unit import test_sessions
from tests.unit.test_sessions import World

world = test_sessions.world


async def test_a_flood_of_signals_does_not_fill_penstockd(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever owns a job can send them without end: past a number one of a kind waits, as in a kernel."""
    sessions: list[launches.LaunchSession] = []
    serve = launches.LaunchSession.serve

    async def noted(session: launches.LaunchSession, message: object, allocation: jobs.Allocation) -> None:
        sessions.append(session)
        await serve(session, message, allocation)  # type: ignore[arg-type]  # passed on as it is

    under_way = asyncio.Event()

    async def never(*how: object, **more: object) -> None:
        under_way.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(launches.LaunchSession, "serve", noted)
    monkeypatch.setattr(world.bridge, "signal", never)
    world.run(7)
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7)
    assert await peer.hear() == [b"started"]
    peer.send("signal", "number", "10", "everyone", "0")
    await under_way.wait()
    for _ in range(500):
        peer.send("signal", "number", "10", "everyone", "0")
    peer.send("signal", "number", "15", "everyone", "1")
    for _ in range(400):
        assert await peer.hear() == [b"delivered"]
    (session,) = sessions
    await test_sessions.until(lambda: session.signals.qsize() == 101)
