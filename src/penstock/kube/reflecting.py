"""One shared picture of all objects of a kind, kept by list → diff → watch.

Watches end, break and answer 410. After each of these everything is listed again and compared with what was
known, so that what vanished meanwhile is noticed. The picture says how old it is: whoever is about to delete
or promise something asks `fresh` first, and confirms a disappearance with a GET of its own (an empty list is
not proof that all is gone).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
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


class Reflector(Generic[T]):
    """The picture of one kind: `objects` by key, and who waits for a change of which."""

    def __init__(self, source: Source, resource: str, kind: type[T], *, time: clock.Clock) -> None:
        self.objects: dict[str, T] = {}
        self.listed = asyncio.Event()
        self._source = source
        self._resource = resource
        self._clock = time
        self._list_decoder = msgspec.json.Decoder(ObjectList[kind])  # type: ignore[valid-type]  # kind is a class at run time
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._broken_since: float | None = time.now()

    @property
    def fresh(self) -> bool:
        """Whether the picture is that of the API now, give or take a moment."""
        broken = self._broken_since
        return self.listed.is_set() and (broken is None or self._clock.now() - broken < STALE_AFTER)

    def put_if_new(self, obj: T) -> None:
        """Show an object that we have just made, before the watch does."""
        if key_of(obj.metadata) not in self.objects:
            self._set(key_of(obj.metadata), obj)

    async def change(self, key: str, known: T | None, *, within: float) -> T | None:
        """The object under `key` as soon as it is another than `known`, or after that many seconds whatever
        it is.
        """
        if self.objects.get(key) is known:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting = self._waiters.setdefault(key, set())
            waiting.add(future)
            try:
                await asyncio.wait_for(future, within)
            except TimeoutError:
                log.debug("no change of %s within %g s", key, within)
            finally:
                waiting.discard(future)
                if not waiting:
                    self._waiters.pop(key, None)
        return self.objects.get(key)

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
        found: dict[str, T] = {}
        query = {"limit": "1000"}
        while True:
            page: ObjectList[T] = self._list_decoder.decode(
                await self._source.get(self._resource, query=query)
            )
            found.update((key_of(item.metadata), item) for item in page.items)
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        self._replace(found)
        self._broken_since = None
        self.listed.set()
        return page.metadata.resource_version

    def apply(self, event: types.Event) -> str:
        """Take one watch event into the picture; the version to go on from."""
        obj = self._decoder.decode(event.object)
        if event.type in ("ADDED", "MODIFIED"):
            self._set(key_of(obj.metadata), obj)
        elif event.type == "DELETED":
            self._set(key_of(obj.metadata), None)
        return obj.metadata.resource_version

    def _replace(self, found: dict[str, T]) -> None:
        for key in self.objects.keys() - found.keys():
            self._set(key, None)
        for key, obj in found.items():
            known = self.objects.get(key)
            if known is None or known.metadata.resource_version != obj.metadata.resource_version:
                self._set(key, obj)

    def _set(self, key: str, obj: T | None) -> None:
        if obj is None:
            self.objects.pop(key, None)
        else:
            self.objects[key] = obj
        for future in self._waiters.get(key, ()):
            if not future.done():
                future.set_result(None)

    def _mark_broken(self) -> None:
        if self._broken_since is None:
            self._broken_since = self._clock.now()
