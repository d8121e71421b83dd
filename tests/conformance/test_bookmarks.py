"""Bookmarks: a version to go on from when nothing happens, in an object that is none.

A real API sends none as long as no object of the kind has changed since the version that a watch began with,
and none in its first minute.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock import clock
from penstock.kube import kinds, reflectors, types
from tests.conformance import client

WATCHES = 12


def bookmark(api: client.Client, *, seconds: int = 8) -> dict[str, Any]:
    """The first bookmark of a watch that saw one change and is quiet since. A busy API server may leave out
    the one that it sends two seconds before a watch ends; then the next watch has one.
    """
    version = api.get("pods")["metadata"]["resourceVersion"]
    api.create("pods", client.pod("before"))
    watches = (
        api.watch("pods", version=version, seconds=seconds, allowWatchBookmarks="true")
        for _ in range(WATCHES)
    )
    return next(event for watch in watches for event in watch if event["type"] == "BOOKMARK")


def test_a_quiet_watch_gets_a_bookmark(api: client.Client) -> None:
    """It names a version that a new watch can begin with."""
    version = bookmark(api)["object"]["metadata"]["resourceVersion"]
    api.create("pods", client.pod("new"))
    seen = next(iter(api.watch("pods", version=version, seconds=10)))
    assert (seen["type"], seen["object"]["metadata"]["name"]) == ("ADDED", "new")


def test_bookmark_objects_are_empty(api: client.Client) -> None:
    """Its kind is right, its name missing, and its containers are null and not an empty list."""
    found = bookmark(api)["object"]
    assert (found["kind"], found["apiVersion"]) == ("Pod", "v1")
    assert "name" not in found["metadata"]
    assert found["spec"] == {"containers": None}


def test_reflector_accepts_bookmarks(api: client.Client) -> None:
    """The cache is unchanged and the version moves on."""
    event = bookmark(api)
    reflector: reflectors.Reflector[types.Pod] = reflectors.Reflector(
        Nobody(), kinds.PODS, types.Pod, time=clock.SystemClock()
    )
    raw = types.Event(type=event["type"], object=msgspec.Raw(msgspec.json.encode(event["object"])))
    assert reflector.apply(raw) == event["object"]["metadata"]["resourceVersion"]
    assert reflector.objects == {}


class Nobody:
    """A source that is never asked."""

    async def get(self, kind: kinds.Kind, **_: Any) -> bytes:
        raise AssertionError(f"{kind} was asked for")

    async def list(self, kind: kinds.Kind, **_: Any) -> bytes:
        raise AssertionError(f"{kind} was listed")

    def watch(self, kind: kinds.Kind, **_: Any) -> Any:
        raise AssertionError(f"{kind} was watched")


def test_bookmarks_are_opt_in(api: client.Client) -> None:
    """A watch without allowWatchBookmarks gets none."""
    version = api.get("pods")["metadata"]["resourceVersion"]
    api.create("pods", client.pod("before"))
    assert [event["type"] for event in api.watch("pods", version=version, seconds=7)] == ["ADDED"]
