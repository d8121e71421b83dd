"""Injected time: whoever waits or measures takes a Clock, so that tests decide what time it is."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What code that waits may ask of time."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Give way to others for that long."""


class SystemClock:
    """The real time of this machine."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
