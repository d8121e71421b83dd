"""One shared picture of all objects of a kind, kept by list → diff → watch.

Watches end, break and answer 410. After each of these everything is listed again and compared with what was
known, so that what vanished meanwhile is noticed. A list is not believed blindly: what it lacks is asked for
by name, and one that lacks what is there, or that is older than what was seen before, is no list of the API's
now; the picture then keeps what it has and counts as broken. Events that come late or twice never replace
newer knowledge. Who has just started remembers nothing to hold a list against, and asks a watch for all there
is as well. The picture says how old it is: whoever is about to delete or promise something asks `fresh`
first, and confirms with a read of its own.
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
"""Shorter than the silence by which the client knows a dead watch: where no object of a kind changes, a real
API sends no bookmark either, until the watch ends.
"""
OPINION_SECONDS = 1
OPINION_PATIENCE = 5.0  # a watch that neither tells nor ends is no reason not to start
FIRST_DELAY = 0.1
STALE_AFTER = 30.0  # without a working watch for that long the picture is not to be trusted
AT_ONCE = 20  # how many missing objects are asked for together; one that is there is enough
OLD_LISTS = 6  # so many lists from the past in a row are no lag but a cluster restored from a backup


class Source(lists.Source, Protocol):
    """What a reflector may call."""

    async def get(self, kind: kinds.Kind, *, name: str, namespace: str = "") -> bytes: ...

    def watch(
        self, kind: kinds.Kind, *, version: str, seconds: int, namespace: str = ""
    ) -> AsyncIterator[types.Event]: ...


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
        """How an object looks from here."""
        self._dead = versions.Tombstones()
        self._highest = ""
        self._old_lists = 0

    @property
    def fresh(self) -> bool:
        """Whether the picture is that of the API now, give or take a moment."""
        broken = self._broken_since
        return self.listed.is_set() and (broken is None or self._clock.now() - broken < STALE_AFTER)

    def by(self, index: str, value: Hashable) -> tuple[T, ...]:
        """The objects that the index of that name has under the value."""
        return self._indexes[index].of(value)

    def put(self, obj: T) -> None:
        """Show an object that we have just made or read, before the watch does."""
        self._take(key_of(obj.metadata), self.view(obj))

    def gone(self, obj: T) -> None:
        """The API itself has said that this very object is no more."""
        self._bury(key_of(obj.metadata), obj)

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
        delay = FIRST_DELAY
        while True:
            began = self._clock.now()
            try:
                await self.follow()
            except errors.KubeError as error:
                has_listed = self._broken_since is None
                self._mark_broken()
                if has_listed and self._clock.now() - began > STALE_AFTER:
                    delay = FIRST_DELAY  # it went well for long: this is no failure after a failure
                wait = max(delay, error.retry_after)
                level = logging.INFO if isinstance(error, errors.KubeGone) else logging.WARNING
                log.log(level, "%s: %s; trying again in %.1f s", self._kind, error.message, wait)
                await self._clock.sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311  # jitter, not a secret
                delay = min(delay * 2, 5.0)

    async def follow(self) -> None:
        """List once, then watch for as long as the server lets us go on from where we are."""
        version = await self.relist()
        while True:
            async for event in self._watch(version, seconds=WATCH_SECONDS):
                version = self.apply(event)
            await self._clock.sleep(0.05)  # a server that ends watches at once must not keep us busy

    async def relist(self) -> str:
        """Replace the picture by a list; the list's version, to watch from.

        KubeUnavailable when the list is not the API's word of now.
        """
        self._on_list(str(self._kind))
        listed = await lists.everything(self._source, self._kind, self._struct, namespace=self._namespace)
        found, version = {key_of(each.metadata): self.view(each) for each in listed.items}, listed.version
        self._require_current(version)
        lied = await self._lacks_what_is_there(found, version)
        for key, obj in found.items():
            self._take(key, obj)
        if lied:
            raise errors.KubeUnavailable(f"a list lacks {lied}, which is there")
        if not self.listed.is_set():
            await self._hear_a_second_opinion()
        self._highest = version
        self._broken_since = None
        self.listed.set()
        return version

    async def _hear_a_second_opinion(self) -> None:
        """A watch without a version begins with all there is: what the first list lacks is known by that."""
        try:
            async with asyncio.timeout(OPINION_PATIENCE):
                async for event in self._watch("", seconds=OPINION_SECONDS):
                    self.apply(event)
        except TimeoutError:
            log.warning("%s: a watch did not end by itself", self._kind)

    def _watch(self, version: str, *, seconds: int) -> AsyncIterator[types.Event]:
        return self._source.watch(self._kind, version=version, seconds=seconds, namespace=self._namespace)

    def _require_current(self, version: str) -> None:
        """A list older than an earlier one comes from a server that lags behind, or from a backup."""
        if not versions.is_older(version, self._highest):
            self._old_lists = 0
            return
        self._old_lists += 1
        if self._old_lists < OLD_LISTS:
            raise errors.KubeUnavailable(f"a list from the past: {version} after {self._highest}")
        log.warning("%s: the cluster has gone back to version %s", self._kind, version)
        self._old_lists, self._highest, self._dead = 0, "", versions.Tombstones()
        for key, obj in tuple(self.objects.items()):
            self._store(key, _of_no_version(obj))

    async def _lacks_what_is_there(self, found: dict[str, T], version: str) -> str:
        """Drop what is truly gone; the name of an object that the list should have had, if there is one.

        What is younger than the list was made while its pages came.
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
        """Take one watch event into the picture; the version to go on from."""
        if event.type == "BOOKMARK":  # no true object: a real API's has `containers: null`
            return codec.decode(event.object, types.Object).metadata.resource_version
        obj = self.view(codec.decode(event.object, self._struct))
        if event.type in ("ADDED", "MODIFIED"):
            self._take(key_of(obj.metadata), obj)
        elif event.type == "DELETED":
            self._bury(key_of(obj.metadata), obj)
        return obj.metadata.resource_version

    def _take(self, key: str, obj: T) -> None:
        """Unless something newer is known of the very object: a later version, or its end."""
        known = self.objects.get(key)
        if obj.metadata.uid in self._dead or (known is not None and not _replaces(obj, known)):
            return
        self._set(key, obj)

    def _bury(self, key: str, obj: T) -> None:
        """An object's end is final; another object of its name is not touched by it."""
        self._dead.add(obj.metadata.uid)
        known = self.objects.get(key)
        if known is None or known.metadata.uid == obj.metadata.uid:
            self._drop(key, obj)

    def _set(self, key: str, obj: T) -> None:
        self._store(key, obj)
        self._tell(key, Change(obj, deleted=False))

    def _drop(self, key: str, last: T) -> None:
        self._store(key, None)
        self._tell(key, Change(last, deleted=True))

    def _store(self, key: str, obj: T | None) -> None:
        """The one place where the picture changes."""
        known = self.objects.pop(key, None) if obj is None else self.objects.get(key)
        if obj is not None:
            self.objects[key] = obj
        for index in self._indexes.values():
            index.change(key, known, obj)

    def _tell(self, key: str, change: Change[T]) -> None:
        for changes in self._subscribers.get(key, ()):
            changes.put(change)

    def _mark_broken(self) -> None:
        if self._broken_since is None:
            self._broken_since = self._clock.now()


def _replaces(obj: T, known: T) -> bool:
    """Whether `obj` tells more than what is known: another object, or a later state of the same one."""
    ours, theirs = known.metadata, obj.metadata
    return ours.uid != theirs.uid or versions.is_news(theirs.resource_version, ours.resource_version)


def _of_no_version(obj: T) -> T:
    """The object as one that everything replaces."""
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, resource_version=""))
