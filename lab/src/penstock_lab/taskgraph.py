"""Runs steps in parallel, in the order of their dependencies.

After the first failure no step is started; running ones are told to give up and waited for, so that none
makes processes during the cleanup that follows.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import Protocol

from penstock_lab import interrupts, subprocesses

WORKERS = 8


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step; `run` returns a short result for people."""

    name: str
    run: Callable[[], str]
    after: tuple[str, ...] = ()


class Listener(Protocol):
    """Observes the steps."""

    def began(self, name: str) -> None: ...

    def ended(self, name: str, what: str, seconds: float) -> None: ...


def run_all(steps: Sequence[Step], *, listener: Listener, give_up: Callable[[], None]) -> None:
    """Run every step as soon as its dependencies are done; raises the first error once nothing runs."""
    waiting = {step.name: step for step in steps}
    unknown = {name for step in steps for name in step.after} - set(waiting)
    if unknown:
        raise ValueError(f"steps wait for unknown steps: {sorted(unknown)}")
    running: dict[futures.Future[None], str] = {}
    ended: queue.SimpleQueue[futures.Future[None]] = queue.SimpleQueue()
    done: set[str] = set()
    with futures.ThreadPoolExecutor(max_workers=WORKERS) as pool:
        try:
            while waiting or running:
                for step in [step for step in waiting.values() if done.issuperset(step.after)]:
                    with interrupts.heard_later():
                        future = pool.submit(_timed, step, listener)
                        future.add_done_callback(ended.put)
                    running[future] = waiting.pop(step.name).name
                if not running:
                    raise ValueError(f"steps wait for each other: {sorted(waiting)}")
                future = ended.get()
                done.add(running.pop(future))
                future.result()
        except BaseException:
            with interrupts.put_off():
                give_up()
                pool.shutdown(cancel_futures=True)
            raise


def _timed(step: Step, listener: Listener) -> None:
    listener.began(step.name)
    began = time.monotonic()
    with subprocesses.os_errors(doing=step.name):
        what = step.run()
    listener.ended(step.name, what, time.monotonic() - began)
