"""A shared cache of all objects of a kind, kept by list, diff and watch (an informer).

Watches end, break and answer 410. After each of these the reflector lists again and compares the list with
the cache, so objects that were deleted meanwhile are noticed. A list is not trusted blindly: each object
that it lacks is looked up by name. If one still exists, or if the list is older than what was seen before,
the list is rejected, and the cache keeps its objects and counts as broken. Late or repeated events never
replace newer states. On a cold start there is nothing to compare the first list with, so it is merged with
an initial watch. Whoever is about to delete or promise something checks `fresh` first, and confirms with a
read of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from penstock import clock, errors
from penstock.kube import codec, kinds, lists, types, versions
from penstock.kube import indexes as indexing

T = TypeVar("T", bound=types.Object)
log = logging.getLogger(__name__)

WATCH_SECONDS = 120
"""Shorter than the silence after which the client treats a watch as dead: if no object of a kind changes, a
real API sends no bookmark either until the watch ends.
"""
INITIAL_WATCH_SECONDS = 1
INITIAL_WATCH_TIMEOUT = 5.0  # a watch that sends nothing and does not end must not block the start
FIRST_DELAY = 0.1
STALE_AFTER = 30.0  # seconds without a working watch until the cache is stale
AT_ONCE = 20  # lookups of missing objects in parallel; one that exists is enough
OLD_LISTS = 6  # this many outdated lists in a row mean a cluster restored from a backup


class Source(lists.Source, Protocol):
    """The client's methods that a reflector calls."""

    async def get(self, kind: kinds.Kind, *, name: str, namespace: str = "") -> bytes: ...

    def watch(
        self, kind: kinds.Kind, *, version: str, seconds: int, namespace: str = ""
    ) -> AsyncIterator[types.Event]: ...


def key_of(meta: types.Meta) -> str:
    return f"{meta.namespace}/{meta.name}"


@dataclasses.dataclass(frozen=True)
class Change(Generic[T]):
    """An object's new state, or its last one if it was deleted."""

    obj: T
    deleted: bool


class Changes(Generic[T]):
    """One subscriber's unread changes; none is dropped."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Change[T]] = asyncio.Queue()

    def put(self, change: Change[T]) -> None:
        self._queue.put_nowait(change)

    def so_far(self) -> Iterator[Change[T]]:
        """Unread changes, without waiting for more."""
        while not self._queue.empty():
            yield self._queue.get_nowait()

    async def next(self, *, within: float) -> Change[T] | None:
        """The next change, or None after `within` seconds."""
        try:
            return await asyncio.wait_for(self._queue.get(), within)
        except TimeoutError:
            return None


class Reflector(Generic[T]):
    """The cache of one kind: `objects` by key, and their subscribers."""

    def __init__(
        self,
        source: Source,
        kind: kinds.Kind,
        struct: type[T],
        *,
        time: clock.Clock,
        namespace: str = "",
        indexes: Mapping[str, indexing.Values[T]] = {},
        on_list: Callable[[str], None] = lambda kind: None,
        view: Callable[[T], T] = lambda obj: obj,
    ) -> None:
        self.objects: dict[str, T] = {}
        self.listed = asyncio.Event()
        self._source = source
        self._kind = kind
        self._struct = struct
        self._namespace = namespace
        self._indexes = {name: indexing.Index(values) for name, values in indexes.items()}
        self._clock = time
        self._subscribers: dict[str, list[Changes[T]]] = {}
        self._broken_since: float | None = time.now()
        self._on_list = on_list
        self.view = view
        self._dead = versions.Tombstones()
        self._highest = ""
        self._old_lists = 0

    @property
    def fresh(self) -> bool:
        """Whether the cache is current."""
        broken = self._broken_since
        return self.listed.is_set() and (broken is None or self._clock.now() - broken < STALE_AFTER)

    def by(self, index: str, value: Hashable) -> tuple[T, ...]:
        """The objects that the named index has under the value."""
        return self._indexes[index].of(value)

    def put(self, obj: T) -> None:
        """Add an object that was just created or read, before the watch reports it."""
        self._take(key_of(obj.metadata), self.view(obj))

    def gone(self, obj: T) -> None:
        """Remove an object that the API has confirmed deleted."""
        self._bury(key_of(obj.metadata), obj)

    @contextlib.contextmanager
    def subscribe(self, key: str) -> Iterator[Changes[T]]:
        """Every change of one object from now on, starting with its cached state."""
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
        """Run `follow` forever, with a backoff after failures."""
        delay = FIRST_DELAY
        while True:
            began = self._clock.now()
            try:
                await self.follow()
            except errors.KubeError as error:
                has_listed = self._broken_since is None
                if self._broken_since is None:
                    self._broken_since = self._clock.now()
                if has_listed and self._clock.now() - began > STALE_AFTER:
                    delay = FIRST_DELAY  # it worked for long: not a repeated failure
                wait = max(delay, error.retry_after)
                level = logging.INFO if isinstance(error, errors.KubeGone) else logging.WARNING
                log.log(level, "%s: %s; trying again in %.1f s", self._kind, error.message, wait)
                await self._clock.sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311  # jitter, not a secret
                delay = min(delay * 2, 5.0)

    async def follow(self) -> None:
        """List once, then watch for as long as the server allows to continue from the last version."""
        version = await self.relist()
        while True:
            async for event in self._watch(version, seconds=WATCH_SECONDS):
                version = self.apply(event)
            await self._clock.sleep(0.05)  # do not spin if the server ends watches at once

    async def relist(self) -> str:
        """Replace the cache by a list; returns its version. KubeUnavailable if it is rejected."""
        self._on_list(str(self._kind))
        listed = await lists.everything(self._source, self._kind, self._struct, namespace=self._namespace)
        found, version = {key_of(each.metadata): self.view(each) for each in listed.items}, listed.version
        self._require_current(version)
        omitted = await self._drop_missing(found, version)
        for key, obj in found.items():
            self._take(key, obj)
        if omitted:
            raise errors.KubeUnavailable(f"outdated list: it lacks {omitted}, which exists")
        if not self.listed.is_set():
            await self._initial_watch()
        self._highest = version
        self._broken_since = None
        self.listed.set()
        return version

    async def _initial_watch(self) -> None:
        """A watch without a version starts with all existing objects, also those missing in the list."""
        try:
            async with asyncio.timeout(INITIAL_WATCH_TIMEOUT):
                async for event in self._watch("", seconds=INITIAL_WATCH_SECONDS):
                    self.apply(event)
        except TimeoutError:
            log.warning("%s: the initial watch did not end by itself", self._kind)

    def _watch(self, version: str, *, seconds: int) -> AsyncIterator[types.Event]:
        return self._source.watch(self._kind, version=version, seconds=seconds, namespace=self._namespace)

    def _require_current(self, version: str) -> None:
        """A list older than an earlier one comes from a lagging server, or from a restored backup."""
        if not versions.is_older(version, self._highest):
            self._old_lists = 0
            return
        self._old_lists += 1
        if self._old_lists < OLD_LISTS:
            raise errors.KubeUnavailable(f"outdated list: version {version} after {self._highest}")
        log.warning("%s: the cluster went back to version %s", self._kind, version)
        self._old_lists, self._highest, self._dead = 0, "", versions.Tombstones()
        for key, obj in tuple(self.objects.items()):
            self._store(key, _of_no_version(obj))

    async def _drop_missing(self, found: dict[str, T], version: str) -> str:
        """Drop objects that are gone; returns the key of one that exists although the list lacks it, or "".

        Objects newer than the list were created while its pages came.
        """
        missing = [
            (key, obj)
            for key, obj in self.objects.items()
            if key not in found and not versions.is_older(version, obj.metadata.resource_version)
        ]
        for first in range(0, len(missing), AT_ONCE):
            some = missing[first : first + AT_ONCE]
            there = await asyncio.gather(*(self._is_there(key) for key, _ in some))
            for (key, obj), still in zip(some, there, strict=True):
                if still:
                    return key
                if key in self.objects:
                    self._bury(key, obj)
        return ""

    async def _is_there(self, key: str) -> bool:
        namespace, _, name = key.partition("/")
        try:
            await self._source.get(self._kind, namespace=namespace, name=name)
        except errors.KubeNotFound:
            return False
        return True

    def apply(self, event: types.Event) -> str:
        """Apply one watch event; returns the version to continue from."""
        if event.type == "BOOKMARK":  # not a full object: a real API's has `containers: null`
            return codec.decode(event.object, types.Object).metadata.resource_version
        obj = self.view(codec.decode(event.object, self._struct))
        if event.type in ("ADDED", "MODIFIED"):
            self._take(key_of(obj.metadata), obj)
        elif event.type == "DELETED":
            self._bury(key_of(obj.metadata), obj)
        return obj.metadata.resource_version

    def _take(self, key: str, obj: T) -> None:
        """Store the object unless a later version of it, or its deletion, is known."""
        known = self.objects.get(key)
        if obj.metadata.uid in self._dead or (known is not None and not _replaces(obj, known)):
            return
        self._set(key, obj)

    def _bury(self, key: str, obj: T) -> None:
        """A deletion is final. It does not affect another object of the same name."""
        self._dead.add(obj.metadata.uid)
        known = self.objects.get(key)
        if known is None or known.metadata.uid == obj.metadata.uid:
            self._drop(key, obj)

    def _set(self, key: str, obj: T) -> None:
        self._store(key, obj)
        self._notify(key, Change(obj, deleted=False))

    def _drop(self, key: str, last: T) -> None:
        self._store(key, None)
        self._notify(key, Change(last, deleted=True))

    def _store(self, key: str, obj: T | None) -> None:
        """The only place that changes the cache."""
        known = self.objects.pop(key, None) if obj is None else self.objects.get(key)
        if obj is not None:
            self.objects[key] = obj
        for index in self._indexes.values():
            index.change(key, known, obj)

    def _notify(self, key: str, change: Change[T]) -> None:
        for changes in self._subscribers.get(key, ()):
            changes.put(change)


def _replaces(obj: T, known: T) -> bool:
    """Whether `obj` is another object than the cached one, or a later state of it."""
    ours, theirs = known.metadata, obj.metadata
    return ours.uid != theirs.uid or versions.is_news(theirs.resource_version, ours.resource_version)


def _of_no_version(obj: T) -> T:
    """A copy that any version replaces."""
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, resource_version=""))
