"""Wakes everybody who waits for "something changed, look again"."""

from __future__ import annotations

import asyncio


class Bell:
    """Unlike an Event it needs no reset: whoever waits hears the next ring."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def ring(self) -> None:
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    async def wait(self, patience: float | None = None) -> None:
        """Until the next ring, or until patience runs out."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._next], timeout=patience)
