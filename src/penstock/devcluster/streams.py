"""Long answers: they end when the client leaves or the server stops, not at the next failed write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send


class Streams:
    """All long answers that are under way."""

    def __init__(self) -> None:
        self._sending: set[asyncio.Task[None]] = set()

    def answer(self, content: AsyncGenerator[bytes, None], media_type: str) -> StreamingResponse:
        return _Stream(content, media_type, self._sending)

    def end(self) -> None:
        """The server stops: no more for anybody."""
        for task in self._sending:
            task.cancel()


class _Stream(StreamingResponse):
    def __init__(
        self, content: AsyncGenerator[bytes, None], media_type: str, sending: set[asyncio.Task[None]]
    ) -> None:
        super().__init__(content, media_type=media_type)
        self._content = content
        self._sending = sending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self.stream_response(send))
        leaving = asyncio.create_task(self.listen_for_disconnect(receive))
        self._sending.add(sending)
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._sending.discard(sending)
            await _end(sending, leaving)
            await self._content.aclose()


async def _end(*tasks: asyncio.Task[None]) -> None:
    """Cancel what still runs; a client that left in the middle of a write is no error, anything else is."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception) and not isinstance(outcome, OSError):
            raise outcome
