"""Signals that come faster than they can be delivered are queued, up to a limit."""

from __future__ import annotations

import asyncio

import pytest

from penstock.bridge import container, run
from tests.unit import test_sessions
from tests.unit.test_sessions import World

world = test_sessions.world


async def test_signal_flood_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's owner can send signals without end: over the limit one of each kind is pending, as in a
    kernel.
    """
    runs: list[run.Run] = []
    listen = run.Run.listen

    async def noted(self: run.Run) -> None:
        runs.append(self)
        await listen(self)

    delivering = asyncio.Event()

    async def never(*how: object, **more: object) -> None:
        delivering.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(run.Run, "listen", noted)
    monkeypatch.setattr(container.Container, "signal", never)
    world.run(7)
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7)
    assert await peer.hear() == [b"started"]
    peer.send("signal", "number", "10", "everyone", "0")
    await delivering.wait()
    for _ in range(500):
        peer.send("signal", "number", "10", "everyone", "0")
    peer.send("signal", "number", "15", "everyone", "1")
    for _ in range(400):
        assert await peer.hear() == [b"delivered"]
    (found,) = runs
    await test_sessions.until(lambda: found._signals.qsize() == 101)
