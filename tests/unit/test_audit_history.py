"""The replay of a watch: a double booking of a moment is found, and room that changes hands is none."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as some

from penstock.audit import history
from penstock.kube import types
from penstock.model import resources
from tests.unit import fakes

ROOM = {"n1": resources.Amount(millicpus=8000, memory=2**35, gpus=4)}
ENDED = types.PodStatus(phase="Failed")


def event(
    name: str, kind: str = "MODIFIED", *, on: str = "n1", status: types.PodStatus | None = None
) -> history.PodEvent:
    return history.PodEvent(kind, fakes.pod(name, on=on, gpus=3, status=status))


def test_two_pods_at_once_are_too_much() -> None:
    """Three and three GPUs of four; evidence names both."""
    (found,) = history.judge([event("a"), event("b"), event("a", "DELETED")], ROOM)
    assert (found.invariant, found.subject) == ("I1", "node n1")
    assert any("default/a" in line for line in found.evidence)
    assert any("default/b" in line for line in found.evidence)


def test_one_after_the_other_is_sound() -> None:
    """Gone, ended, elsewhere or not placed yet: no room is taken twice."""
    for first in (event("a", "DELETED"), event("a", status=ENDED)):
        assert history.judge([event("a"), first, event("b")], ROOM) == ()
    assert history.judge([event("a"), event("b", on="n2")], ROOM) == ()
    assert history.judge([event("a"), event("b", "ADDED", on="")], ROOM) == ()


def test_what_was_there_before_counts() -> None:
    """A history that begins in the middle knows who was there."""
    assert len(history.judge([event("b")], ROOM, before=[fakes.pod("a", gpus=3)])) == 1


def test_a_kept_watch_is_read_without_its_torn_end() -> None:
    """Bookmarks and half a line are no events."""
    line = msgspec.json.encode(event("a")).decode()
    bookmark = '{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"},"spec":{"containers":null}}}'
    assert [one.object.metadata.name for one in history.events([line, bookmark, line[:50]])] == ["a"]


@given(some.lists(some.tuples(some.sampled_from("abc"), some.booleans()), max_size=30))
def test_the_replay_counts_as_a_dictionary_does(steps: list[tuple[str, bool]]) -> None:
    """Against a model: pods of three GPUs come and go; two at once on four are one too many."""
    there: set[str] = set()
    broken = False
    told = []
    for name, comes in steps:
        (there.add if comes else there.discard)(name)
        broken = broken or len(there) > 1
        told.append(event(name, "MODIFIED" if comes else "DELETED"))
    assert bool(history.judge(told, ROOM)) == broken
