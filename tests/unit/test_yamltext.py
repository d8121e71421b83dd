"""Manifests as YAML, read back by another parser."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from penstock.render import yamltext


@example("a 😀 face")
@example("\\ud83d\\ude00 in letters")
@example("\x7f\x85\u2028")
@given(st.text())
def test_any_text_round_trips(text: str) -> None:
    """As a key, in a list and as a value; characters beyond U+FFFF have their own escape in YAML."""
    value = {"key": text, "list": [text, {"inner": text}], "x" + text: 1}
    assert YAML(typ="safe", pure=True).load(yamltext.document(value)) == value
