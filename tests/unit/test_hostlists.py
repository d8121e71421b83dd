"""Slurm's host lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock.slurm import hostlists


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("n1", ("n1",)),
        ("n1,login", ("n1", "login")),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("n[1-2,07],login", ("n1", "n2", "n07", "login")),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("gpu-[a,b]-x", ("gpu-a-x", "gpu-b-x")),
    ],
)
def test_lists_are_expanded_in_order(text: str, names: tuple[str, ...]) -> None:
    """In Slurm's order, leading zeros are kept."""
    assert hostlists.expand(text) == names


@pytest.mark.parametrize(
    "text", ["n[1-3", "n1]", "n[[1]]", "a,,b", ",", "n[]", "n[1,,2]", "n[3-1]", "n[10-9]"]
)
def test_broken_lists_are_errors(text: str) -> None:
    with pytest.raises(errors.SlurmError):
        hostlists.expand(text)


def test_size_of_a_list_is_limited() -> None:
    """Before it is built."""
    with pytest.raises(errors.SlurmError, match="more than"):
        hostlists.expand("n[1-999999999]")


@given(st.lists(st.from_regex(r"[a-z][a-z0-9-]{0,10}", fullmatch=True), max_size=10))
def test_plain_names_stay_themselves(names: list[str]) -> None:
    assert hostlists.expand(",".join(names)) == tuple(names)


@given(st.text(alphabet="n[]-,0123456789", max_size=20))
def test_any_text_is_a_list_or_an_error(text: str) -> None:
    """Only SlurmError is raised."""
    try:
        found = hostlists.expand(text)
    except errors.SlurmError:
        return
    assert all(isinstance(name, str) for name in found)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("n1",), "n1"),
        (("n2", "n1", "n3", "n2"), "n[1-3]"),
        ([f"n{number}" for number in range(1, 137)], "n[1-136]"),
        (("n08", "n09", "n10", "n1"), "n[1,08-10]"),
        (("login", "p1.example.org", "p2.example.org"), "p[1-2].example.org,login"),
        (("r1n1", "r1n2", "r2n1"), "r1n[1-2],r2n1"),
    ],
)
def test_names_are_folded(names: tuple[str, ...], text: str) -> None:
    """As sinfo prints them; names without a number stay as they are."""
    assert hostlists.fold(names) == text


@given(st.sets(st.from_regex(r"\A[a-z]{0,2}[0-9]{0,4}[a-z.]{1,2}[0-9]{0,3}\Z"), max_size=30))
def test_folded_names_expand_to_themselves(names: set[str]) -> None:
    assert sorted(hostlists.expand(hostlists.fold(names))) == sorted(names)
