"""Watches over plain HTTP: history, selectors, bookmarks, expiry."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import msgspec
import pytest

from penstock_lab.devcluster import watches as watching_module
from tests.devcluster import clusters as testing
from tests.devcluster.clusters import pod


@contextmanager
def watching(api: testing.Client, path: str, **query: str) -> Iterator[Iterator[dict[str, Any]]]:
    """Events of a watch, as they come."""
    with api.http.stream("GET", path, params={"watch": "1", **query}) as answer:
        assert answer.status_code == 200
        yield (msgspec.json.decode(line) for line in answer.iter_lines() if line)


def brief(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


def version(api: testing.Client) -> str:
    return str(api.get("configmaps")["metadata"]["resourceVersion"])


def labelled(name: str, value: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"k": value}}}


def test_events_come_in_order_with_rising_versions(api: testing.Client) -> None:
    """Creation, change and deletion after the listed version are told once each."""
    start = version(api)
    api.create("configmaps", labelled("a", "1"))
    api.patch("configmaps", "a", {"data": {"x": "y"}})
    api.delete("configmaps", "a")
    with watching(api, api.path("configmaps"), resourceVersion=start) as events:
        seen = [next(events) for _ in range(3)]
    assert [brief(event) for event in seen] == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(set(versions))
    assert versions[0] > int(start)


def test_watch_without_a_version_begins_with_what_is_there(api: testing.Client) -> None:
    """Existing objects come first, as ADDED."""
    api.create("configmaps", labelled("a", "1"))
    api.create("configmaps", labelled("b", "1"))
    with watching(api, api.path("configmaps")) as events:
        assert [brief(next(events)) for _ in range(2)] == [("ADDED", "a"), ("ADDED", "b")]
        api.create("configmaps", labelled("c", "1"))
        assert brief(next(events)) == ("ADDED", "c")


def test_leaving_the_selection_looks_like_a_deletion(api: testing.Client) -> None:
    """An object whose labels no longer match is told as DELETED, one that begins to match as ADDED."""
    start = version(api)
    with watching(api, api.path("configmaps"), resourceVersion=start, labelSelector="k=yes") as events:
        api.create("configmaps", labelled("a", "no"))
        api.patch("configmaps", "a", {"metadata": {"labels": {"k": "yes"}}})
        api.patch("configmaps", "a", {"data": {"x": "y"}})
        api.patch("configmaps", "a", {"metadata": {"labels": {"k": "no"}}})
        api.delete("configmaps", "a")
        api.create("configmaps", labelled("b", "yes"))
        seen = [brief(next(events)) for _ in range(4)]
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]


def test_watch_is_limited_to_its_namespace(api: testing.Client) -> None:
    """A watch of one namespace is silent about the others; one over all is not."""
    start = version(api)
    api.call("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"generateName": "foreign-"}})
    api.create("configmaps", labelled("mine", "1"))
    with watching(api, api.path("configmaps"), resourceVersion=start) as events:
        assert brief(next(events)) == ("ADDED", "mine")
    with watching(api, "/api/v1/configmaps", resourceVersion=start) as events:
        assert next(events)["object"]["metadata"]["name"].startswith("foreign-")


def test_field_selector_on_node_name(api: testing.Client) -> None:
    """A pod enters the watch of its node when it is bound."""
    query = {"resourceVersion": version(api), "fieldSelector": "spec.nodeName=n2"}
    api.create("pods", pod("p", "true", schedulerName="nobody"))
    with watching(api, api.path("pods"), **query) as events:
        api.call("POST", api.path("pods", "p/binding"), {"target": {"name": "n2"}})
        event = next(events)
    assert brief(event) == ("ADDED", "p")
    assert event["object"]["spec"]["nodeName"] == "n2"


def test_timeout_ends_the_watch(api: testing.Client) -> None:
    """timeoutSeconds closes an idle watch properly."""
    with watching(api, api.path("configmaps"), timeoutSeconds="1") as events:
        assert list(events) == []


def test_bookmarks_come_when_asked_for(api: testing.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle watch with bookmarks hears the current version after a few seconds (here fewer)."""
    monkeypatch.setattr(watching_module, "BOOKMARK_SECONDS", 0.3)
    query = {"allowWatchBookmarks": "true", "resourceVersion": version(api), "timeoutSeconds": "60"}
    with watching(api, api.path("configmaps"), **query) as events:
        event = next(events)
    assert event["type"] == "BOOKMARK"
    assert event["object"]["kind"] == "ConfigMap"
    assert int(event["object"]["metadata"]["resourceVersion"]) >= int(query["resourceVersion"])


def test_expired_version_is_an_error_event(own: testing.Client) -> None:
    """After a compaction a watch from before it answers 200 with one ERROR event of code 410."""
    old = version(own)
    own.call("POST", "/devcluster/v1/compact")
    with watching(own, own.path("configmaps"), resourceVersion=old) as events:
        seen = list(events)
    assert [event["type"] for event in seen] == ["ERROR"]
    assert (seen[0]["object"]["code"], seen[0]["object"]["reason"]) == (410, "Expired")


def test_running_watch_survives_a_compaction(own: testing.Client) -> None:
    """Who is already watching misses nothing when the history goes."""
    with watching(own, own.path("configmaps"), resourceVersion=version(own)) as events:
        own.call("POST", "/devcluster/v1/compact")
        own.create("configmaps", labelled("a", "1"))
        assert brief(next(events)) == ("ADDED", "a")


def test_invalid_watch_parameters_are_refused(api: testing.Client) -> None:
    """A version that is not a number and streaming lists are refused, as older servers do."""
    assert api.get("configmaps", watch="1", resourceVersion="soon")["code"] == 400
    assert api.get("configmaps", watch="1", sendInitialEvents="true")["code"] == 422
    assert api.get("configmaps", watch="1", timeoutSeconds="soon")["code"] == 400


def test_many_watchers_see_everything(api: testing.Client) -> None:
    """Twenty watchers each see fifty changes in the same order."""
    start, seen = version(api), dict[int, list[str]]()

    def watch(number: int) -> None:
        headers = dict(api.http.headers)
        query = {"watch": "1", "resourceVersion": start, "timeoutSeconds": "60"}
        url = f"{api.http.base_url}{api.path('configmaps')}"
        with httpx2.stream("GET", url, params=query, headers=headers, timeout=90) as answer:
            lines = answer.iter_lines()
            seen[number] = [brief(msgspec.json.decode(next(lines)))[1] for _ in range(50)]

    threads = [threading.Thread(target=watch, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for number in range(50):
        api.create("configmaps", labelled(f"c{number}", "1"))
    for thread in threads:
        thread.join()
    assert set(map(tuple, seen.values())) == {tuple(f"c{number}" for number in range(50))}
    assert len(seen) == 20
