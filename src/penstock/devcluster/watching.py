"""Watches: history first, then what happens, filtered by selectors, with bookmarks while nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from penstock.devcluster import kinds, statuses
from penstock.devcluster.kinds import Kind
from penstock.devcluster.selectors import Predicate
from penstock.devcluster.statuses import ApiError, Json
from penstock.devcluster.store import HISTORY, Change, Entry, Store

BOOKMARK_SECONDS: Final = 5.0
LONGEST: Final = 3600.0


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What a client wants to see."""

    kind: Kind
    namespace: str | None
    version: str = ""
    matches: Predicate | None = None
    bookmarks: bool = False
    timeout: float = LONGEST
    name: str = ""

    def wants(self, entry: Entry | None) -> bool:
        if entry is None or (self.namespace is not None and entry.key[0] != self.namespace):
            return False
        return (not self.name or entry.key[1] == self.name) and (
            self.matches is None or self.matches(entry.obj)
        )


def as_version(text: str) -> int:
    if text and not text.isdigit():
        raise statuses.ApiError(400, "BadRequest", f'invalid resource version "{text}"')
    return int(text or 0)


def line(event: str, raw: bytes) -> bytes:
    return b'{"type":"' + event.encode() + b'","object":' + raw + b"}\n"


def _error(refusal: ApiError) -> bytes:
    return line("ERROR", msgspec.json.encode(refusal.body()))


def seen(change: Change, request: WatchRequest) -> str:
    """The event as this watcher sees it: leaving the selection is a deletion, entering it a creation."""
    before, after = request.wants(change.before), change.type != "DELETED" and request.wants(change.entry)
    if after:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else ""


class Watch:
    """One watch. Refusals that can be known at once are raised here, later ones become ERROR events."""

    def __init__(self, store: Store, request: WatchRequest, render: Callable[[Entry], bytes]) -> None:
        self._store = store
        self._request = request
        self._render = render
        self._version = as_version(request.version)
        self._queue: asyncio.Queue[Change] = asyncio.Queue()
        if self._version:
            store.check_known(self._version)

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Subscribes first and then looks back, without a pause: nothing falls in between."""
        leave = self._store.listen(self._request.kind, self._queue.put_nowait)
        try:
            for text in self._beginning():
                yield text
            async for text in self._continuation():
                yield text
        except ApiError as refusal:
            yield _error(refusal)
        finally:
            leave()

    def _beginning(self) -> list[bytes]:
        if self._version:
            return [self._shown(change) for change in self._store.since(self._request.kind, self._version)]
        now = self._store.all(self._request.kind, self._request.namespace)
        return [line("ADDED", self._render(entry)) for entry in now if self._request.wants(entry)]

    def _shown(self, change: Change) -> bytes:
        event = seen(change, self._request)
        return line(event, self._render(change.entry)) if event else b""

    async def _continuation(self) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._request.timeout
        while (left := end - loop.time()) > 0:
            patience = min(left, BOOKMARK_SECONDS) if self._request.bookmarks else left
            try:
                change = await asyncio.wait_for(self._queue.get(), patience)
            except TimeoutError:
                if self._request.bookmarks:
                    yield self._bookmark()
                continue
            if self._queue.qsize() > HISTORY:
                raise statuses.expired(change.entry.version, self._store.version)
            if shown := self._shown(change):
                yield shown

    def _bookmark(self) -> bytes:
        kind = self._request.kind
        metadata: Json = {"resourceVersion": str(self._store.version), "creationTimestamp": None}
        body: Json = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        if kind is kinds.PODS:  # an empty object as Go writes it: a list that must be there is null
            body["spec"] = {"containers": None}
        return line("BOOKMARK", msgspec.json.encode(body))


async def refused(refusal: ApiError) -> AsyncGenerator[bytes, None]:
    """A watch that cannot begin, told as real servers tell it: inside an accepted answer."""
    yield _error(refusal)
