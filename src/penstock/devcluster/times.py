"""Times as Kubernetes writes them."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now(offset: float = 0) -> str:
    """Whole seconds, as in creationTimestamp; truncated, so that it is never in the future."""
    return stamp(time.time() + offset)


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro(seconds: float | None = None) -> str:
    """Microseconds, as in events and log lines."""
    moment = datetime.fromtimestamp(time.time() if seconds is None else seconds, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
