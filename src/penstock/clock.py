"""Injected time: code that waits or measures takes a Clock, so that tests control the time."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds of a monotonic clock."""

    async def sleep(self, seconds: float) -> None:
        """Yield for that many seconds."""


class SystemClock:
    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
