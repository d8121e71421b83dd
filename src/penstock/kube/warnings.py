"""Warning events of a pod in words: why a mount, an image or a sandbox could not be had."""

from __future__ import annotations

import msgspec

from penstock.kube import decoding

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


class EventList(msgspec.Struct):
    """What a list of events answers."""

    items: list[Event]


def query(uid: str) -> dict[str, str]:
    """Which events to ask for: those about the object with this uid."""
    return {"fieldSelector": f"involvedObject.uid={uid}"}


def words(answer: bytes) -> tuple[str, ...]:
    """The latest warnings of a list of events, each once, the very last one at the end."""
    return of(decoding.decode(answer, EventList).items)


def of(events: list[Event]) -> tuple[str, ...]:
    """The same of events that are decoded already."""
    warnings = sorted((event for event in events if event.type == "Warning"), key=lambda event: event.when)
    told = [" ".join(f"{event.reason}: {event.message}".split()) for event in warnings]
    latest_first = tuple(dict.fromkeys(reversed(told)))[:MOST]
    return latest_first[::-1]
