"""The definition of a lab's daemon."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock import wellknown
from penstock_lab import health

Check = Callable[[], str]
"""Returns what is wrong, or an empty string."""


@dataclass(frozen=True, kw_only=True)
class Component:
    """A daemon: how it is started, as which user, after which steps, and how its health is checked."""

    name: str
    argv: tuple[str, ...]
    check: Check
    """Whether it serves others; polled at start, and again before a restart."""
    complaint: Check = health.nothing
    """A problem to report that a restart would not fix."""
    user: str = "root"
    on_loopback: bool = False
    """Listens on the address of the machine's host name, which therefore must resolve to loopback."""
    after: tuple[str, ...] = ()
    """Steps to finish before this one starts."""
    port: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    start_seconds: float = 60.0
    recover_seconds: float = 30.0
    """How long a running daemon may fail its check before it is restarted: its peers may just have been
    restarted, and an answer may take a third of this time on a busy machine.
    """
    stop_seconds: float = 5.0


def python_environment() -> dict[str, str]:
    """Our own programs are imported from the same path as this one, and their output is unbuffered."""
    wanted = ("PYTHONPATH", wellknown.ENV_CRASH_POINTS)
    kept = {name: os.environ[name] for name in wanted if name in os.environ}
    return kept | {"PYTHONUNBUFFERED": "1"}


def words(options: Mapping[str, object]) -> tuple[str, ...]:
    """Options as arguments: `--name value` for each."""
    return tuple(str(word) for option in options.items() for word in option)
