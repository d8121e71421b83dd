"""What is remembered of a job in its AdminComment: read as it was written, beside whatever else is there."""

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
def test_it_is_read_as_it_was_written(mark: marks.Mark) -> None:
    assert marks.read(str(mark)) == mark


@given(MARKS, MARKS)
def test_a_new_one_takes_its_place_and_leaves_the_sites_own_words(old: marks.Mark, new: marks.Mark) -> None:
    changed = marks.write(new, f"ticket 17 {old} checked by ops")
    assert changed == f"ticket 17 {new} checked by ops"
    assert marks.read(changed) == new


@pytest.mark.parametrize("comment", ["", "(null)", "penstockd", "my-penstock", "penstock=1", "xpenstock 17"])
def test_words_that_only_look_like_it_are_none(comment: str) -> None:
    assert marks.read(comment) is None


@pytest.mark.parametrize("comment", ["penstock", "penstock 1794858677", "x penstock 1794858677 y"])
def test_jobs_that_were_submitted_before_an_upgrade_have_shorter_ones(comment: str) -> None:
    found = marks.read(comment)
    assert found is not None
    assert (found.requeue, found.avoids, found.until) == (None, (), 0)
