"""Watching: every change after a list, in order, and an end when the time is over."""

from __future__ import annotations

import threading
import time

from tests.conformance import client


def test_watch_continues_from_the_list(api: client.Client) -> None:
    """Nothing between the list and the watch is missed or repeated."""
    api.create("pods", client.pod("before"))
    version = api.get("pods")["metadata"]["resourceVersion"]
    api.create("pods", client.pod("between"))
    api.delete("pods", "before", {"gracePeriodSeconds": 0})
    seen = [
        (event["type"], event["object"]["metadata"]["name"])
        for event in api.watch("pods", version=version, seconds=5)
        if event["type"] in ("ADDED", "DELETED")
    ]
    assert seen == [("ADDED", "between"), ("DELETED", "before")]


def test_watch_without_version_begins_with_all_objects(api: client.Client) -> None:
    """The cross-check of the first list on a cold start."""
    for name in ("a", "b"):
        api.create("pods", client.pod(name))
    seen = [
        (each["type"], each["object"]["metadata"]["name"])
        for each in api.watch("pods", version="", seconds=1)
    ]
    assert sorted(seen) == [("ADDED", "a"), ("ADDED", "b")]


def test_versions_rise_and_the_last_one_can_be_watched_from(api: client.Client) -> None:
    """A watch from the last version seen begins with what is new."""
    version = api.get("pods")["metadata"]["resourceVersion"]
    api.create("pods", client.pod("one"))
    first = next(event for event in api.watch("pods", version=version, seconds=30))
    api.create("pods", client.pod("two"))
    again = api.watch("pods", version=first["object"]["metadata"]["resourceVersion"], seconds=30)
    assert next(event["object"]["metadata"]["name"] for event in again) == "two"


def test_watch_ends_at_its_timeout(api: client.Client) -> None:
    """The server closes the stream properly, without an error."""
    version = api.get("pods")["metadata"]["resourceVersion"]
    began = time.monotonic()
    assert list(api.watch("pods", version=version, seconds=2)) == []
    assert 1 <= time.monotonic() - began < 20


def test_events_arrive_immediately(api: client.Client) -> None:
    """A waiting watch gets a new pod at once."""
    version = api.get("pods")["metadata"]["resourceVersion"]
    late = threading.Timer(0.5, lambda: api.create("pods", client.pod("late")))
    late.start()
    began = time.monotonic()
    event = next(iter(api.watch("pods", version=version, seconds=60)))
    late.join()
    assert event["object"]["metadata"]["name"] == "late"
    assert time.monotonic() - began < 40  # and not when the watch ends


def test_a_deletion_shows_the_object_as_it_was_last(api: client.Client) -> None:
    """The version of a DELETED event is newer than any before: a watcher goes on from it."""
    made = api.create("pods", client.pod("short"))
    api.delete("pods", "short", {"gracePeriodSeconds": 0})
    events = list(api.watch("pods", version=made["metadata"]["resourceVersion"], seconds=5))
    last = events[-1]
    assert last["type"] == "DELETED"
    assert last["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert int(last["object"]["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


def test_label_selectors_turn_changes_into_added_and_deleted(api: client.Client) -> None:
    """An object that stops matching is DELETED for this watcher, although it still exists."""
    made = api.create("pods", client.pod("p", labels={"colour": "red"}))
    patch = {"metadata": {"labels": {"colour": "blue"}}}
    api.call("PATCH", api.path("pods", "p"), patch, kind="application/merge-patch+json")
    version = made["metadata"]["resourceVersion"]
    (event,) = api.watch("pods", version=version, seconds=5, labelSelector="colour=red")
    assert event["type"] == "DELETED"
    assert api.get("pods", "p")["metadata"]["labels"] == {"colour": "blue"}
