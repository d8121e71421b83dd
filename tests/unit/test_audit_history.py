"""Replay of a recorded watch: momentary double bookings are found."""

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


def test_overlapping_pods_are_a_violation() -> None:
    """3 + 3 GPUs of 4; the evidence names both pods."""
    (found,) = history.judge([event("a"), event("b"), event("a", "DELETED")], ROOM)
    assert (found.invariant, found.subject) == ("I1", "node n1")
    assert any("default/a" in line for line in found.evidence)
    assert any("default/b" in line for line in found.evidence)


def test_successive_pods_are_no_violation() -> None:
    """Deleted, ended, elsewhere or unbound pods take no room."""
    for first in (event("a", "DELETED"), event("a", status=ENDED)):
        assert history.judge([event("a"), first, event("b")], ROOM) == ()
    assert history.judge([event("a"), event("b", on="n2")], ROOM) == ()
    assert history.judge([event("a"), event("b", "ADDED", on="")], ROOM) == ()


def test_pods_from_before_the_watch_count() -> None:
    assert len(history.judge([event("b")], ROOM, before=[fakes.pod("a", gpus=3)])) == 1


def test_bookmarks_and_a_truncated_line_are_skipped() -> None:
    line = msgspec.json.encode(event("a")).decode()
    bookmark = '{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"},"spec":{"containers":null}}}'
    assert [one.object.metadata.name for one in history.events([line, bookmark, line[:50]])] == ["a"]


@given(some.lists(some.tuples(some.sampled_from("abc"), some.booleans()), max_size=30))
def test_replay_agrees_with_a_model(steps: list[tuple[str, bool]]) -> None:
    """Pods of 3 GPUs on a node of 4: two at once are a violation."""
    there: set[str] = set()
    broken = False
    told = []
    for name, comes in steps:
        (there.add if comes else there.discard)(name)
        broken = broken or len(there) > 1
        told.append(event(name, "MODIFIED" if comes else "DELETED"))
    assert bool(history.judge(told, ROOM)) == broken
