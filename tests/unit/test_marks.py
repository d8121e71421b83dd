"""The mark in AdminComment round-trips, next to any other text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.slurm import marks

NAMES = st.from_regex(r"[a-z][a-z0-9.-]{0,8}", fullmatch=True)
MARKS = st.builds(
    marks.Mark,
    submission=st.integers(1, 10**14).map(str),
    requeue=st.none() | st.booleans(),
    avoids=st.lists(NAMES, max_size=4).map(tuple),
    until=st.integers(0, 10**14),
)


@given(MARKS)
def test_mark_round_trips(mark: marks.Mark) -> None:
    assert marks.read(str(mark)) == mark


@given(MARKS, MARKS)
def test_new_mark_replaces_the_old_one(old: marks.Mark, new: marks.Mark) -> None:
    changed = marks.write(new, f"ticket 17 {old} checked by ops")
    assert changed == f"ticket 17 {new} checked by ops"
    assert marks.read(changed) == new


@pytest.mark.parametrize("comment", ["", "(null)", "penstockd", "my-penstock", "penstock=1", "xpenstock 17"])
def test_similar_text_is_not_a_mark(comment: str) -> None:
    assert marks.read(comment) is None


@pytest.mark.parametrize("comment", ["penstock", "penstock 1794858677", "x penstock 1794858677 y"])
def test_marks_of_older_releases_are_shorter(comment: str) -> None:
    found = marks.read(comment)
    assert found is not None
    assert (found.requeue, found.avoids, found.until) == (None, (), 0)
