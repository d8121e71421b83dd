"""The shared cache of a kind: list, diff, watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from penstock import errors
from penstock.kube import client, kinds, reflectors, types
from tests.unit import fakes


def event(kind: str, name: str, version: str) -> types.Event:
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": version}
    }
    return types.Event(type=kind, object=msgspec.Raw(msgspec.json.encode(body)))


class Script:
    """A server with scripted answers: lists by names, watches by events or errors."""

    def __init__(
        self, lists: Sequence[Sequence[str] | Exception], watches: Sequence[Sequence[types.Event | Exception]]
    ) -> None:
        self.lists = list(lists)
        self.watches = list(watches)
        self.versions: list[str] = []
        self.there: set[str] = set()
        self.version = "10"
        self.all: list[types.Event] = []
        """What a watch without a version begins with."""

    async def get(self, kind: kinds.Kind, *, name: str, namespace: str = "") -> bytes:
        if name not in self.there:
            raise errors.KubeNotFound("not found", status=404)
        return msgspec.json.encode({"metadata": {"name": name}})

    async def list(self, kind: kinds.Kind, **_: Any) -> bytes:
        if not self.lists:
            await asyncio.Event().wait()
        answer = self.lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        items = [
            {"metadata": {"name": one, "namespace": "default", "uid": f"uid-{one}", "resourceVersion": "5"}}
            for one in answer
        ]
        return msgspec.json.encode({"metadata": {"resourceVersion": self.version}, "items": items})

    async def watch(self, kind: kinds.Kind, *, version: str, **_: Any) -> AsyncIterator[types.Event]:
        if not version:
            for one in self.all:
                yield one
            return
        self.versions.append(version)
        if not self.watches:
            await asyncio.Event().wait()
        for item in self.watches.pop(0):
            if isinstance(item, Exception):
                raise item
            yield item


async def run(server: Script, *, clock: fakes.ManualClock | None = None) -> reflectors.Reflector[types.Pod]:
    """The reflector after the script."""
    reflector = reflectors.Reflector(server, kinds.PODS, types.Pod, time=clock or fakes.ManualClock())
    task = asyncio.create_task(reflector.run())
    for _ in range(200):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return reflector


async def test_watch_continues_from_the_list() -> None:
    """Events change the cache; the next watch starts after the last event or bookmark."""
    events = [event("ADDED", "b", "11"), event("DELETED", "a", "12"), event("BOOKMARK", "", "20")]
    server = Script([["a"]], [events])
    reflector = await run(server)
    assert set(reflector.objects) == {"default/b"}
    assert server.versions == ["10", "20"]


async def test_deletion_during_a_gap_is_noticed() -> None:
    """After 410 the reflector lists again and compares."""
    server = Script([["a", "b"], ["b", "c"]], [[errors.KubeGone("too old", status=410)]])
    reflector = await run(server)
    assert set(reflector.objects) == {"default/b", "default/c"}


async def test_a_failed_list_changes_nothing() -> None:
    """No answer is not an empty answer."""
    server = Script([["a"], errors.KubeUnavailable("502"), ["a"]], [[errors.KubeUnavailable("cut")]])
    clock = fakes.ManualClock()
    reflector = await run(server, clock=clock)
    assert set(reflector.objects) == {"default/a"}
    assert reflector.fresh


async def test_cache_without_a_watch_becomes_stale() -> None:
    """Nothing may be promised or deleted by it."""
    clock = fakes.ManualClock()
    server = Script([["a"], *[errors.KubeUnavailable("down")] * 40], [[errors.KubeUnavailable("cut")]])
    reflector = await run(server, clock=clock)
    assert not reflector.fresh
    assert set(reflector.objects) == {"default/a"}


async def test_410_on_every_list_backs_off() -> None:
    """Lists can fail with 410 from their second page on: the reflector must pause, and the cache is not
    fresh.
    """
    clock = fakes.ManualClock()
    gone = errors.KubeGone("too old", status=410)
    server = Script([["a"], *[gone] * 40], [[gone]])
    reflector = await run(server, clock=clock)
    assert not reflector.fresh
    assert clock.now() - 1000 > reflectors.STALE_AFTER


async def test_backoff_resets_after_working_for_long() -> None:
    """Otherwise an old daemon would wait the longest time after every hiccup."""
    clock = fakes.ManualClock()

    class Lasting(Script):
        async def watch(self, kind: kinds.Kind, *, version: str, **_: Any) -> AsyncIterator[types.Event]:
            if version:
                clock.time += 3600
                raise errors.KubeUnavailable("cut")
            for one in self.all:
                yield one

    await run(Lasting([["a"]] * 10, []), clock=clock)
    assert (clock.now() - 1000) % 3600 < 2


async def test_slow_failures_back_off() -> None:
    """An API whose answers never end is not asked again at once."""
    clock = fakes.ManualClock()

    class Slow(Script):
        async def list(self, kind: kinds.Kind, **about: Any) -> bytes:
            clock.time += 60
            return await super().list(kind, **about)

    await run(Slow([errors.KubeUnavailable("no answer")] * 10, []), clock=clock)
    assert (clock.now() - 1000) % 60 > 10


async def test_repeated_pages_end_a_list() -> None:
    """A proxy that gives the first page again would be asked forever."""
    page = {"metadata": {"resourceVersion": "1", "continue": "x"}, "items": []}

    class Repeating(Script):
        async def list(self, kind: kinds.Kind, **_: Any) -> bytes:
            await asyncio.sleep(0)
            return msgspec.json.encode(page)

    reflector = reflectors.Reflector(Repeating([], []), kinds.PODS, types.Pod, time=fakes.ManualClock())
    async with asyncio.timeout(2):
        with pytest.raises(errors.KubeUnavailable):
            await reflector.relist()


async def test_cache_is_not_fresh_before_the_first_list() -> None:
    reflector = reflectors.Reflector(Script([], []), kinds.PODS, types.Pod, time=fakes.ManualClock())
    assert not reflector.fresh


def new_reflector() -> reflectors.Reflector[types.Pod]:
    return reflectors.Reflector(Script([], []), kinds.PODS, types.Pod, time=fakes.ManualClock())


async def test_subscriber_gets_every_change() -> None:
    """The last state before a deletion is not lost; the deletion repeats it."""
    reflector = new_reflector()
    with reflector.subscribe("default/a") as changes:
        for kind, version in (("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "3")):
            reflector.apply(event(kind, "a", version))
        heard = [await changes.next(within=1) for _ in range(3)]
    assert [(one.obj.metadata.resource_version, one.deleted) for one in heard if one] == [
        ("1", False),
        ("2", False),
        ("3", True),
    ]


async def test_subscription_starts_with_the_cached_state() -> None:
    reflector = new_reflector()
    reflector.apply(event("ADDED", "a", "1"))
    with reflector.subscribe("default/a") as changes:
        first = await changes.next(within=1)
    assert first is not None
    assert first.obj.metadata.name == "a"


async def test_waiting_for_a_change_times_out() -> None:
    """Other objects' changes do not count, and no subscription is left behind."""
    reflector = new_reflector()
    with reflector.subscribe("default/a") as changes:
        reflector.apply(event("ADDED", "b", "1"))
        assert await changes.next(within=0.01) is None
    assert reflector._subscribers == {}


async def test_pages_are_joined() -> None:
    class Paged(Script):
        async def list(self, kind: kinds.Kind, *, after: str = "", **_: Any) -> bytes:
            more = not after
            item = {"metadata": {"name": "a" if more else "b", "namespace": "default"}}
            meta = {"resourceVersion": "10", "continue": "next" if more else ""}
            return msgspec.json.encode({"metadata": meta, "items": [item]})

    reflector = reflectors.Reflector(Paged([], []), kinds.PODS, types.Pod, time=fakes.ManualClock())
    assert await reflector.relist() == "10"
    assert set(reflector.objects) == {"default/a", "default/b"}


def test_watch_ends_before_the_read_timeout() -> None:
    """A real API sends no bookmarks if nothing changes: a healthy watch may send nothing before it ends."""
    assert reflectors.WATCH_SECONDS + reflectors.STALE_AFTER <= client.SILENCE
