"""Several requests at a time, but not all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def gather(requests: Iterable[Coroutine[Any, Any, _T]], *, at_once: int) -> list[_T]:
    """All answers, in order; raises the first error when all have ended."""
    gate = asyncio.Semaphore(at_once)

    async def one(request: Coroutine[Any, Any, _T]) -> _T:
        async with gate:
            return await request

    answers = await asyncio.gather(*map(one, requests), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]
