"""One shared picture of all objects of a kind, kept by list → diff → watch.

Watches end, break and answer 410. After each of these everything is listed again and compared with what was
known, so that what vanished meanwhile is noticed. The picture says how old it is: whoever is about to delete
or promise something asks `fresh` first, and confirms a disappearance with a GET of its own (an empty list is
not proof that all is gone).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Generic, Protocol, TypeVar

import msgspec

from penstock import clock, errors
from penstock.kube import types

T = TypeVar("T", bound=types.Pod | types.Node)
log = logging.getLogger(__name__)

WATCH_SECONDS = 300
STALE_AFTER = 30.0  # without a working watch for that long the picture is not to be trusted


class Source(Protocol):
    """What a reflector may call."""

    async def get(
        self, resource: str, *, namespace: str = "", name: str = "", query: dict[str, str] | None = None
    ) -> bytes: ...

    def watch(self, resource: str, *, version: str, seconds: int) -> AsyncIterator[types.Event]: ...


class ObjectList(msgspec.Struct, Generic[T]):
    """A page of a list."""

    metadata: types.ListMeta
    items: list[T]


def key_of(meta: types.Meta) -> str:
    """`namespace/name`, unique among the objects of a kind."""
    return f"{meta.namespace}/{meta.name}"


@dataclasses.dataclass(frozen=True)
class Change(Generic[T]):
    """An object as it is now, or as it was when it went."""

    obj: T
    deleted: bool


class Changes(Generic[T]):
    """What one subscriber has not looked at yet: nothing is skipped, however fast it came."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Change[T]] = asyncio.Queue()

    def put(self, change: Change[T]) -> None:
        self._queue.put_nowait(change)

    def so_far(self) -> Iterator[Change[T]]:
        """What has come and not been looked at, without waiting for more."""
        while not self._queue.empty():
            yield self._queue.get_nowait()

    async def next(self, *, within: float) -> Change[T] | None:
        """The next change; None when there is none for that long."""
        try:
            return await asyncio.wait_for(self._queue.get(), within)
        except TimeoutError:
            return None


class Reflector(Generic[T]):
    """The picture of one kind: `objects` by key, and who wants to hear of which."""

    def __init__(
        self,
        source: Source,
        resource: str,
        kind: type[T],
        *,
        time: clock.Clock,
        on_list: Callable[[str], None] = lambda resource: None,
        view: Callable[[T], T] = lambda obj: obj,
    ) -> None:
        self.objects: dict[str, T] = {}
        self.listed = asyncio.Event()
        self._source = source
        self._resource = resource
        self._clock = time
        self._list_decoder = msgspec.json.Decoder(ObjectList[kind])  # type: ignore[valid-type]  # kind is a class at run time
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._subscribers: dict[str, list[Changes[T]]] = {}
        self._broken_since: float | None = time.now()
        self._on_list = on_list
        self._view = view

    @property
    def fresh(self) -> bool:
        """Whether the picture is that of the API now, give or take a moment."""
        broken = self._broken_since
        return self.listed.is_set() and (broken is None or self._clock.now() - broken < STALE_AFTER)

    def put_if_new(self, obj: T) -> None:
        """Show an object that we have just made, before the watch does."""
        if key_of(obj.metadata) not in self.objects:
            self._set(key_of(obj.metadata), obj)

    @contextlib.contextmanager
    def subscribe(self, key: str) -> Iterator[Changes[T]]:
        """Every change of one object from now on, beginning with what is known of it."""
        changes: Changes[T] = Changes()
        if key in self.objects:
            changes.put(Change(self.objects[key], deleted=False))
        subscribed = self._subscribers.setdefault(key, [])
        subscribed.append(changes)
        try:
            yield changes
        finally:
            subscribed.remove(changes)
            if not subscribed:
                del self._subscribers[key]

    async def run(self) -> None:
        """For ever: follow, and after a failure wait a little longer each time."""
        delay = 0.1
        while True:
            try:
                await self.follow()
                delay = 0.1
            except errors.KubeGone:
                log.info("%s: watch expired, listing again", self._resource)
            except errors.KubeError as error:
                self._mark_broken()
                log.warning("%s: %s; trying again in %.1f s", self._resource, error.message, delay)
                await self._clock.sleep(delay * random.uniform(0.8, 1.2))  # noqa: S311  # jitter, not a secret
                delay = min(delay * 2, 5.0)

    async def follow(self) -> None:
        """List once, then watch for as long as the server lets us go on from where we are."""
        version = await self.relist()
        while True:
            async for event in self._source.watch(self._resource, version=version, seconds=WATCH_SECONDS):
                version = self.apply(event)
            await self._clock.sleep(0.05)  # a server that ends watches at once must not keep us busy

    async def relist(self) -> str:
        """Replace the picture by a list; the list's version, to watch from."""
        self._on_list(self._resource)
        found: dict[str, T] = {}
        query = {"limit": "1000"}
        while True:
            page: ObjectList[T] = self._list_decoder.decode(
                await self._source.get(self._resource, query=query)
            )
            found.update((key_of(item.metadata), self._view(item)) for item in page.items)
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        self._replace(found)
        self._broken_since = None
        self.listed.set()
        return page.metadata.resource_version

    def apply(self, event: types.Event) -> str:
        """Take one watch event into the picture; the version to go on from."""
        if event.type == "BOOKMARK":  # no true object: a real API's has `containers: null`
            return msgspec.json.decode(event.object, type=types.Bookmark).metadata.resource_version
        obj = self._view(self._decoder.decode(event.object))
        if event.type in ("ADDED", "MODIFIED"):
            self._set(key_of(obj.metadata), obj)
        elif event.type == "DELETED":
            self._drop(key_of(obj.metadata), obj)
        return obj.metadata.resource_version

    def _replace(self, found: dict[str, T]) -> None:
        for key in self.objects.keys() - found.keys():
            self._drop(key, self.objects[key])
        for key, obj in found.items():
            known = self.objects.get(key)
            if known is None or known.metadata.resource_version != obj.metadata.resource_version:
                self._set(key, obj)

    def _set(self, key: str, obj: T) -> None:
        self.objects[key] = obj
        self._tell(key, Change(obj, deleted=False))

    def _drop(self, key: str, last: T) -> None:
        self.objects.pop(key, None)
        self._tell(key, Change(last, deleted=True))

    def _tell(self, key: str, change: Change[T]) -> None:
        for changes in self._subscribers.get(key, ()):
            changes.put(change)

    def _mark_broken(self) -> None:
        if self._broken_since is None:
            self._broken_since = self._clock.now()
