"""Signals: when interrupted, a lab that is coming up is completely taken down again."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE = b"penstock: the lab is being taken down, please wait\n"


def heed() -> None:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt; signals ignored by nohup stay ignored."""
    for number in _SIGNALS:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Ignore Ctrl-C during cleanup, which is short.

    Uses a handler, not SIG_IGN, which the programs that we run would inherit.
    """
    with _handled_by(_ask_for_patience):
        yield


@contextlib.contextmanager
def heard_later() -> Iterator[None]:
    """Delay signals for a short block: a thread that is just being started cannot be joined yet."""
    heard: list[int] = []
    if are_put_off():
        yield
        return
    with _handled_by(lambda number, frame: heard.append(number)):
        yield
    if heard:
        signal.raise_signal(heard[0])


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, object], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    found = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: usual for number, usual in found.items() if usual not in (None, signal.SIG_IGN)}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)


def are_put_off() -> bool:
    """Whether a cleanup is in progress."""
    return signal.getsignal(signal.SIGINT) is _ask_for_patience


def _ask_for_patience(number: int, frame: object) -> None:
    with contextlib.suppress(OSError):  # after SIGHUP the terminal may be gone
        os.write(2, _PATIENCE)
