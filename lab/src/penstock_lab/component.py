"""What one daemon of a lab is: how it is started, as whom, after which others, and how it is seen to work."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock import wellknown
from penstock_lab import health

Check = Callable[[], str]
"""Says what is wrong, or nothing."""


@dataclass(frozen=True, kw_only=True)
class Component:
    """One daemon of the lab."""

    name: str
    argv: tuple[str, ...]
    check: Check
    """What keeps it from serving others: asked until there is nothing, and again before a restart."""
    complaint: Check = health.nothing
    """What a person should know although a restart would not change it."""
    user: str = "root"
    on_loopback: bool = False
    """Listens on the address of the machine's name, which therefore must stand for loopback."""
    after: tuple[str, ...] = ()
    """Steps that must be done before this one starts."""
    port: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    start_seconds: float = 60.0
    recover_seconds: float = 30.0
    """How long one that runs may be unwell before it is replaced: its peers may just have been restarted, and
    an answer may take a third of that on a busy machine.
    """
    stop_seconds: float = 5.0


def python_environment() -> dict[str, str]:
    """Our own programs must be found the way we were, and say at once what they have to say."""
    wanted = ("PYTHONPATH", wellknown.ENV_CRASH_POINTS)
    kept = {name: os.environ[name] for name in wanted if name in os.environ}
    return kept | {"PYTHONUNBUFFERED": "1"}
