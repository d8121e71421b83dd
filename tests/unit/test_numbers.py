"""Strict parsing of numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import numbers


@given(st.integers(0, 2**64 - 1))
def test_natural_numbers_are_parsed(number: int) -> None:
    """From text and bytes."""
    assert numbers.natural(str(number)) == numbers.natural(str(number).encode()) == number


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", " 1", "1 ", "1_000", "\u00b2", "\u0661", "9" * 21, "9" * 5000, "0x1"]
)
def test_everything_else_is_none(text: str) -> None:
    """Never an error, never a guess."""
    assert numbers.natural(text) is None
