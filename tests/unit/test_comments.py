"""A pending job's comment has the reason, and is the owner's again when it starts."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import comments

REASONS = st.text(string.ascii_letters + string.digits + " .,:/()-", min_size=1)
OWN = st.text().filter(lambda text: text not in ("(null)", "N/A") and comments.own(text) is None)


@given(st.lists(REASONS, min_size=1, max_size=4), OWN)
def test_owners_comment_survives_refusals(reasons: list[str], own: str) -> None:
    """Each reason replaces the one before it."""
    comment = own
    for reason in reasons:
        comment = comments.waiting(reason, comment)
        assert comment.startswith(f"{reason} [penstock]")
    assert comments.own(comment) == own


@pytest.mark.parametrize("comment", ["", "(null)", "N/A"])
def test_unset_comment_is_restored_as_empty(comment: str) -> None:
    """squeue has several words for it."""
    assert comments.waiting("waits", comment) == "waits [penstock]"
    assert comments.own("waits [penstock]") == ""


@pytest.mark.parametrize("comment", ["", "mine", "waits for data", "[penstock]", "waits [penstock]ed"])
def test_owners_own_comment_is_kept(comment: str) -> None:
    """Also if it is changed while the job waits."""
    assert comments.own(comment) is None
