"""Blocking calls in daemon threads. Unlike asyncio.to_thread, they do not keep the program from ending, so
Ctrl-C works while a server does not answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent import futures
from typing import ParamSpec, TypeVar

Words = ParamSpec("Words")
Answer = TypeVar("Answer")


async def run(work: Callable[Words, Answer], *args: Words.args, **kwargs: Words.kwargs) -> Answer:
    done: futures.Future[Answer] = futures.Future()
    done.set_running_or_notify_cancel()

    def call() -> None:
        try:
            done.set_result(work(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  # it is raised where the answer is awaited
            done.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return await asyncio.wrap_future(done)
