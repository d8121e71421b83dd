"""Warning events of a pod in words: why a mount, an image or a sandbox could not be had."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

MOST = 5
"""The latest; a kubelet repeats itself."""


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """What the cluster says about an object."""

    type: str = ""
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def when(self) -> str:
        return self.last_timestamp or self.event_time or ""


def about(uid: str) -> str:
    """Which events to ask for, as a field selector: those about the object with this uid."""
    return f"involvedObject.uid={uid}"


def words(events: Iterable[Event]) -> tuple[str, ...]:
    """The latest warnings among them, each once, the very last one at the end."""
    warnings = sorted((event for event in events if event.type == "Warning"), key=lambda event: event.when)
    told = [" ".join(f"{event.reason}: {event.message}".split()) for event in warnings]
    latest_first = tuple(dict.fromkeys(reversed(told)))[:MOST]
    return latest_first[::-1]
