"""A job's comment says what it waits for, and is its owner's again when it starts."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import comments

REASONS = st.text(string.ascii_letters + string.digits + " .,:/()-", min_size=1)
OWN = st.text().filter(lambda text: text not in ("(null)", "N/A") and comments.own(text) is None)


@given(st.lists(REASONS, min_size=1, max_size=4), OWN)
def test_the_owners_comment_survives_any_number_of_refusals(reasons: list[str], own: str) -> None:
    """Each takes the place of the one before it."""
    comment = own
    for reason in reasons:
        comment = comments.waiting(reason, comment)
        assert comment.startswith(f"{reason} [penstock]")
    assert comments.own(comment) == own


@pytest.mark.parametrize("comment", ["", "(null)", "N/A"])
def test_no_comment_is_put_back_as_none(comment: str) -> None:
    """squeue has several words for none."""
    assert comments.waiting("waits", comment) == "waits [penstock]"
    assert comments.own("waits [penstock]") == ""


@pytest.mark.parametrize("comment", ["", "mine", "waits for data", "[penstock]", "waits [penstock]ed"])
def test_what_its_owner_wrote_is_left_alone(comment: str) -> None:
    """Also what an owner writes while the job waits."""
    assert comments.own(comment) is None
