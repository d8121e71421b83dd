"""Wrong answers of the API do not mislead a reflector: lists that lack objects, events out of order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from penstock import errors
from penstock.kube import apierrors, codec, kinds, lists, reflectors, types, versions
from tests.unit import fakes
from tests.unit.test_reflectors import Script, event, run


async def test_empty_list_is_checked_by_name() -> None:
    """The objects still exist, so the list is rejected and the cache stays."""
    server = Script([["a", "b"], [], []], [[errors.KubeGone("too old", status=410)]])
    server.there = {"a", "b"}
    clock = fakes.ManualClock()
    reflector = await run(server, clock=clock)
    assert set(reflector.objects) == {"default/a", "default/b"}


async def test_cold_start_merges_list_with_initial_watch() -> None:
    """The watch reports objects that the list lacks, and deletions since."""
    server = Script([["a"]], [])
    server.all = [event("ADDED", "a", "5"), event("ADDED", "b", "6"), event("DELETED", "a", "11")]
    reflector = await run(server)
    assert set(reflector.objects) == {"default/b"}
    assert reflector.fresh


async def test_endless_initial_watch_does_not_block_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its events until then count."""

    class Frozen(Script):
        async def watch(self, kind: kinds.Kind, *, version: str, **_: Any) -> AsyncIterator[types.Event]:
            yield event("ADDED", "b", "6")
            await asyncio.Event().wait()

    monkeypatch.setattr(reflectors, "INITIAL_WATCH_TIMEOUT", 0.02)
    reflector = reflectors.Reflector(Frozen([["a"]], []), kinds.PODS, types.Pod, time=fakes.ManualClock())
    await reflector.relist()
    assert set(reflector.objects) == {"default/a", "default/b"}


async def test_repeatedly_incomplete_list_makes_the_cache_stale() -> None:
    server = Script([["a"], *([[]] * 40)], [[errors.KubeGone("too old", status=410)]])
    server.there = {"a"}
    reflector = await run(server)
    assert not reflector.fresh
    assert set(reflector.objects) == {"default/a"}


async def test_one_existing_object_rejects_a_list() -> None:
    """A thousand missing objects are not all looked up."""
    names = [f"p{number}" for number in range(1000)]
    server = Script([names, []], [[errors.KubeGone("too old", status=410)]])
    server.there = set(names)
    asked: list[str] = []
    get = server.get

    async def counting(kind: kinds.Kind, *, name: str, namespace: str = "") -> bytes:
        asked.append(name)
        return await get(kind, namespace=namespace, name=name)

    server.get = counting  # type: ignore[method-assign]  # the same server, with somebody who counts
    reflector = await run(server)
    assert len(reflector.objects) == 1000
    assert len(asked) <= reflectors.AT_ONCE


async def test_outdated_list_is_rejected_until_all_are() -> None:
    """A lagging server is asked again; if all lists are old, the cluster was restored from a backup."""
    reflector = reflectors.Reflector(Script([], []), kinds.PODS, types.Pod, time=fakes.ManualClock())
    source = Script([["a"], *([["b"]] * reflectors.OLD_LISTS)], [])
    reflector._source = source
    await reflector.relist()
    source.version = "7"
    for _ in range(reflectors.OLD_LISTS - 1):
        with pytest.raises(errors.KubeUnavailable, match="outdated list"):
            await reflector.relist()
        assert set(reflector.objects) == {"default/a"}
    assert await reflector.relist() == "7"
    assert set(reflector.objects) == {"default/b"}


async def test_object_created_during_a_list_is_not_missing() -> None:
    """Otherwise a launch during a long list would invalidate every list."""
    server = Script([["a"], ["a"]], [])
    reflector = reflectors.Reflector(server, kinds.PODS, types.Pod, time=fakes.ManualClock())
    await reflector.relist()
    server.there = {"a", "young"}
    reflector.apply(event("ADDED", "young", "11"))
    assert await reflector.relist() == "10"
    assert set(reflector.objects) == {"default/a", "default/young"}


async def test_deleted_object_does_not_come_back() -> None:
    """Somebody who follows the pod puts it once more, in an older state."""
    server = Script([["a"], []], [])
    reflector = reflectors.Reflector(server, kinds.PODS, types.Pod, time=fakes.ManualClock())
    await reflector.relist()
    known = reflector.objects["default/a"]
    await reflector.relist()
    reflector.put(known)
    assert reflector.objects == {}


async def test_a_restored_cluster_brings_its_objects_back() -> None:
    """They run with the same uids as before."""
    source = Script([["a"], *([["a"]] * reflectors.OLD_LISTS)], [])
    reflector = reflectors.Reflector(source, kinds.PODS, types.Pod, time=fakes.ManualClock())
    await reflector.relist()
    reflector.apply(event("DELETED", "a", "12"))
    source.version = "7"
    for _ in range(reflectors.OLD_LISTS - 1):
        with pytest.raises(errors.KubeUnavailable, match="outdated list"):
            await reflector.relist()
    await reflector.relist()
    assert set(reflector.objects) == {"default/a"}


@pytest.mark.parametrize(
    ("events", "version"),
    [
        ([("ADDED", "5"), ("MODIFIED", "7"), ("MODIFIED", "6")], "7"),
        ([("ADDED", "5"), ("ADDED", "5")], "5"),
        ([("MODIFIED", "6"), ("ADDED", "5")], "6"),
        ([("ADDED", "5"), ("DELETED", "8"), ("MODIFIED", "7")], None),
        ([("DELETED", "8"), ("ADDED", "5")], None),
    ],
)
def test_late_events_bring_nothing_back(events: list[tuple[str, str]], version: str | None) -> None:
    """Neither an older state nor a deleted object."""
    reflector = reflectors.Reflector(Script([], []), kinds.PODS, types.Pod, time=fakes.ManualClock())
    for kind, number in events:
        reflector.apply(event(kind, "a", number))
    known = reflector.objects.get("default/a")
    assert (known.metadata.resource_version if known else None) == version


def test_name_can_be_reused() -> None:
    """The late deletion of the old object does not delete the new one."""
    reflector = reflectors.Reflector(Script([], []), kinds.PODS, types.Pod, time=fakes.ManualClock())
    reflector.put(fakes.pod("a", version="9"))
    old = {"metadata": {"name": "a", "namespace": "default", "uid": "older", "resourceVersion": "8"}}
    raw = types.Event(type="DELETED", object=msgspec.Raw(msgspec.json.encode(old)))
    reflector.apply(raw)
    assert "default/a" in reflector.objects


def test_non_numeric_versions_have_no_order() -> None:
    assert versions.is_older("9", than="10")
    assert not versions.is_older("a", than="b")
    assert versions.is_news("a", known="b")
    assert not versions.is_news("a", known="a")


def test_tombstones_are_bounded() -> None:
    dead = versions.Tombstones()
    for number in range(versions.REMEMBERED + 5):
        dead.add(str(number))
    assert "4" not in dead
    assert "5" in dead


@pytest.mark.parametrize(
    ("body", "code", "kind"),
    [
        (b'{"kind": "Status", "message": "pods p not found"}', 404, errors.KubeNotFound),
        (b"404 page not found", 404, errors.KubeUnavailable),
        (b"<html>no such site</html>", 404, errors.KubeUnavailable),
        (b'{"kind": "Status"}', 401, errors.KubeUnavailable),
        (b'{"kind": "Status"}', 403, errors.KubeError),
        (b"<html>403 Forbidden</html>", 403, errors.KubeUnavailable),
        (
            b'{"kind": "Status", "message": "pods \\"p\\" is forbidden: not yet ready to handle request"}',
            403,
            errors.KubeUnavailable,
        ),
        (b'{"kind": "Status", "message": "pods is forbidden: exceeded quota: q"}', 403, errors.KubeError),
        (b"<html>", 502, errors.KubeUnavailable),
    ],
)
def test_404_without_a_status_is_unavailable(body: bytes, code: int, kind: type[errors.KubeError]) -> None:
    """A load balancer's 404 proves nothing."""
    with pytest.raises(errors.KubeError) as caught:
        apierrors.raise_for(body, code)
    assert type(caught.value) is kind


@pytest.mark.parametrize("answer", [b"", b"{", b"<html>", b'{"items": 3}', b'{"metadata": {}}'])
def test_unreadable_answer_is_unavailable(answer: bytes) -> None:
    """Truncated, or from somebody else."""
    with pytest.raises(errors.KubeUnavailable):
        codec.decode(answer, lists.Page[types.Pod])
