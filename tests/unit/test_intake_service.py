"""An event wakes the intake once: no busy loop while it must not or cannot scan."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from penstock.intake import service
from penstock.nas import dropfolder
from tests.unit import intakes
from tests.unit.intakes import harness, nas

__all__ = ["nas"]  # pytest finds the fixture by its name

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


class Alarm(asyncio.Event):
    """Counts calls of set()."""

    rung = 0

    def set(self) -> None:
        self.rung += 1
        super().set()


class Woken:
    """An intake that watches a local folder and has done one pass."""

    def __init__(self, nas: Path) -> None:
        self.harness = harness(nas)
        site = msgspec.structs.replace(self.harness.site, status=str(nas.parent / "inbox.json"))
        self.intake = service.Intake(site, self.harness.clerk)
        self.alarm = self.intake.wake = Alarm()
        self.stop = asyncio.Event()
        self.intake.tick()
        assert self.intake.watch is not None, "no inotify here"

    async def count_passes(self, most: int, seconds: float) -> int:
        """The number of passes in that time."""
        count, end = 0, asyncio.get_running_loop().time() + seconds
        while count < most and asyncio.get_running_loop().time() < end:
            await self.intake.pause(self.stop)
            self.intake.tick()
            count += 1
        return count


@pytest.fixture
async def woken(nas: Path) -> AsyncIterator[Woken]:
    made = Woken(nas)
    yield made
    made.intake._close_folder()


async def test_event_during_pause_wakes_once(woken: Woken, nas: Path) -> None:
    """A pause follows a long scan; events meanwhile cost nothing."""
    woken.intake._earliest_scan = woken.harness.clock.now() + 0.5
    intakes.drop(nas, "a.sh")
    await woken.intake.pause(woken.stop)
    assert woken.alarm.is_set()
    await woken.intake.pause(woken.stop)
    assert woken.alarm.rung < 5


async def test_event_on_failing_nas_wakes_once(
    woken: Woken, nas: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The NAS is read again at the next poll, whatever events come."""

    def broken(root: int) -> str:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(dropfolder, "_marker", broken)
    intakes.drop(nas, "a.sh")
    assert await woken.count_passes(100, 1.2) < 10
    assert "Input/output error" in woken.intake.problem


async def test_event_after_pass_wakes_again(woken: Woken, nas: Path) -> None:
    """Also the second and the third."""
    for number in range(3):
        woken.harness.clock.time += 1.0
        intakes.drop(nas, f"{number}.sh")
        async with asyncio.timeout(30):
            while not woken.alarm.is_set():
                await woken.intake.pause(woken.stop)
        woken.intake.tick()
        assert not woken.alarm.is_set()
