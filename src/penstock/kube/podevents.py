"""A pod's warning events as text: why a mount, an image or a sandbox failed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

MOST = 5  # the latest; a kubelet repeats itself


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """A Kubernetes event."""

    type: str = ""
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def when(self) -> str:
        return self.last_timestamp or self.event_time or ""


def about(uid: str) -> str:
    """Field selector for the events of the object with this uid."""
    return f"involvedObject.uid={uid}"


def words(events: Iterable[Event]) -> tuple[str, ...]:
    """The latest distinct warnings, oldest first."""
    warnings = sorted((event for event in events if event.type == "Warning"), key=lambda event: event.when)
    told = [" ".join(f"{event.reason}: {event.message}".split()) for event in warnings]
    latest_first = tuple(dict.fromkeys(reversed(told)))[:MOST]
    return latest_first[::-1]
