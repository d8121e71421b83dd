"""What wakes the intake does so once: it does not turn in circles when it may not or cannot look yet."""

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
from tests.unit.intakes import desk, nas

__all__ = ["nas"]  # pytest finds the fixture by its name

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


class Alarm(asyncio.Event):
    """Counts how often it is rung."""

    rung = 0

    def set(self) -> None:
        self.rung += 1
        super().set()


class Woken:
    """An intake that looks at a local folder, and has looked once."""

    def __init__(self, nas: Path) -> None:
        self.desk = desk(nas)
        site = msgspec.structs.replace(self.desk.site, status=str(nas.parent / "inbox.json"))
        self.intake = service.Intake(site, self.desk.clerk)
        self.alarm = self.intake.wake = Alarm()
        self.stop = asyncio.Event()
        self.intake.tick()
        assert self.intake.watch is not None, "no inotify here"

    async def looks(self, most: int, seconds: float) -> int:
        """How often it looks meanwhile."""
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
    made.intake._unprepare()


async def test_news_that_must_wait_wake_once(woken: Woken, nas: Path) -> None:
    """After a long look there is a pause; whatever happens meanwhile costs nothing."""
    woken.intake._earliest_scan = woken.desk.clock.now() + 0.5
    intakes.drop(nas, "a.sh")
    await woken.intake.pause(woken.stop)
    assert woken.alarm.is_set()
    await woken.intake.pause(woken.stop)
    assert woken.alarm.rung < 5


async def test_news_that_cannot_be_looked_at_wake_once(
    woken: Woken, nas: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A NAS that fails is asked again at the next poll, however much has happened in it."""

    def broken(root: int) -> str:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(dropfolder, "_marker", broken)
    intakes.drop(nas, "a.sh")
    assert await woken.looks(100, 1.2) < 10
    assert "Input/output error" in woken.intake.problem


async def test_news_wake_again_after_a_look(woken: Woken, nas: Path) -> None:
    """Also the second and the third."""
    for number in range(3):
        woken.desk.clock.time += 1.0
        intakes.drop(nas, f"{number}.sh")
        async with asyncio.timeout(30):
            while not woken.alarm.is_set():
                await woken.intake.pause(woken.stop)
        woken.intake.tick()
        assert not woken.alarm.is_set()
