"""The store alone: versions, history, listeners, compaction."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_lab.devcluster import kindtable, statuses, watches
from penstock_lab.devcluster.objectstore import Change, Entry, Store

CM = kindtable.CONFIGMAPS


def thing(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}"}, **more}


def test_versions_are_one_rising_counter() -> None:
    """Every write of any kind takes the next number."""
    store = Store()
    first = store.put(CM, thing("a"))
    second = store.put(kindtable.SECRETS, thing("a"))
    third = store.remove(CM, "ns", "a")
    assert [second.version - first.version, third.version - second.version] == [1, 1]
    assert third.obj["metadata"]["resourceVersion"] == str(third.version)


def test_copies_are_independent() -> None:
    """Changing a copy changes nothing in the store."""
    store = Store()
    entry = store.put(CM, thing("a", data={"k": "v"}))
    entry.copy()["data"]["k"] = "changed"
    found = store.get(CM, "ns", "a")
    assert found is not None
    assert found.obj["data"] == {"k": "v"}


def test_history_is_bounded() -> None:
    """What falls out of the history is expired, what is still in it is not."""
    store = Store(history=5)
    versions = [store.put(CM, thing(f"c{number}")).version for number in range(10)]
    assert [change.entry.version for change in store.since(CM, versions[4])] == versions[5:]
    with pytest.raises(statuses.ApiError) as refused:
        store.since(CM, versions[3])
    assert refused.value.code == 410


def test_versions_of_an_earlier_cluster_are_too_old() -> None:
    """Who watched it must list again: all that it knows is gone, and nobody will tell."""
    earlier = Store().put(CM, thing("a")).version
    time.sleep(0.01)
    with pytest.raises(statuses.ApiError) as refused:
        Store().since(CM, earlier)
    assert refused.value.code == 410


def test_compaction_makes_every_known_version_too_old() -> None:
    """Even the latest version given out is refused; a new list begins after it."""
    store = Store()
    latest = store.put(CM, thing("a")).version
    store.compact()
    with pytest.raises(statuses.ApiError):
        store.since(CM, latest)
    assert store.since(CM, store.version) == []


def test_listeners_hear_their_kind_until_they_leave() -> None:
    """A listener of one kind is not told of others; one without a kind hears all."""
    store, of_kind, of_all = Store(), list[Change](), list[Change]()
    leave = store.listen(CM, of_kind.append)
    store.listen(None, of_all.append)
    store.put(CM, thing("a"))
    store.put(kindtable.SECRETS, thing("a"))
    leave()
    store.remove(CM, "ns", "a")
    assert [change.type for change in of_kind] == ["ADDED"]
    assert [change.type for change in of_all] == ["ADDED", "ADDED", "DELETED"]


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y", None])), max_size=40)


@given(steps=STEPS, begin=st.integers(0, 40))
def test_list_then_watch_always_leads_to_the_present(steps: list[tuple[str, str | None]], begin: int) -> None:
    """Whoever lists at any moment and replays the watch from there knows exactly what matches now."""
    store = Store()
    request = watches.WatchRequest(CM, "ns", matches=lambda obj: obj["colour"] == "x")
    known: dict[str, Entry] = {}
    listed = store.version
    for number, (name, colour) in enumerate(steps):
        if number == begin:
            known = {entry.key[1]: entry for entry in store.all(CM, "ns") if request.wants(entry)}
            listed = store.version
        if colour:
            store.put(CM, thing(name, colour=colour))
        elif store.get(CM, "ns", name):
            store.remove(CM, "ns", name)
    for change in store.since(CM, listed):
        event = watches.seen(change, request)
        if event == "DELETED":
            del known[change.entry.key[1]]
        elif event:
            assert (event == "ADDED") == (change.entry.key[1] not in known)
            known[change.entry.key[1]] = change.entry
    present = {entry.key[1] for entry in store.all(CM, "ns") if request.wants(entry)}
    assert set(known) == present
