"""Requests as shims write them, and whatever else a job's own processes write."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.calls import requests

WORD = st.binary(max_size=20).map(lambda word: word.replace(b"\0", b""))
NAME = WORD.map(lambda name: name.replace(b"=", b""))


@given(words=st.lists(WORD), environment=st.dictionaries(NAME, WORD), folder=WORD)
def test_request_is_read_back(words: list[bytes], environment: dict[bytes, bytes], folder: bytes) -> None:
    fields = [folder, b"%d" % (len(words) + 1), b"squeue", *words]
    fields += [name + b"=" + value for name, value in environment.items()]
    found = requests.parse(b"0022\n" + b"".join(field + b"\0" for field in fields))
    assert (found.name, found.words, found.folder) == ("squeue", tuple(words), folder)
    assert (found.environment, found.umask) == (environment, b"0022")


@given(st.binary())
def test_anything_else_is_refused_or_read(data: bytes) -> None:
    """Never another error: penstockd answers the call."""
    with contextlib.suppress(requests.BadRequest):
        assert requests.parse(data).umask.isdigit()


@pytest.mark.parametrize("word", ["17-4", "1-99999999999"])
def test_key(word: str) -> None:
    assert requests.key(word) == word


@pytest.mark.parametrize("word", ["", "17", "../17-4", "17-4\n", "17-4 end", "-", "1-2-3", "१-२"])
def test_other_words_are_no_keys(word: str) -> None:
    """They are sent back to the pod as words of a line."""
    with pytest.raises(ValueError, match="is no call"):
        requests.key(word)
