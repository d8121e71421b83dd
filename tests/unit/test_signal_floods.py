"""Signals that come faster than they can be delivered are queued, up to a limit."""

from __future__ import annotations

import asyncio

import pytest

from penstock.bridge import container, run
from penstock.bridge.launch import Launch
from tests.unit import test_sessions
from tests.unit.test_sessions import World

world = test_sessions.world


async def test_signal_flood_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's owner can send signals without end: over the limit one of each kind is pending, as in a
    kernel.
    """
    runs: list[run.Run] = []
    prepare = run.Running.prepare

    def noted(running: run.Running, launch: Launch, sent: dict[int, int]) -> run.Run:
        runs.append(prepare(running, launch, sent))
        return runs[-1]

    under_way = asyncio.Event()

    async def never(*how: object, **more: object) -> None:
        under_way.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(run.Running, "prepare", noted)
    monkeypatch.setattr(container.Container, "signal", never)
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
    (found,) = runs
    await test_sessions.until(lambda: found._signals.qsize() == 101)
