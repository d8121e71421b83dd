"""--export: what srun 22.05.8 gave to its tasks."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from penstock.calls import exports

CALLER = {b"A": b"1", b"B": b"1", b"Q": b"x,y", b"SLURM_JOB_ID": b"17", b"SRUN_DEBUG": b"3"}
SLURMS = {b"SLURM_JOB_ID": b"17"}


@pytest.mark.parametrize(
    ("export", "expected"),
    [
        (None, CALLER),
        (b"ALL", CALLER),
        (b"all", CALLER),
        (b"ALL,C=2", {**CALLER, b"C": b"2"}),
        (b"ALL,B=2", CALLER),
        (b"B=2,ALL", CALLER),
        (b"B=2", {**SLURMS, b"B": b"2"}),
        (b"NONE", SLURMS),
        (b"none,B=2", SLURMS),
        (b"B=2,NONE,C=3", {**SLURMS, b"B": b"2"}),
        (b"A,Z,B", {**SLURMS, b"A": b"1", b"B": b"1"}),
        (b"NIL,B", {**SLURMS, b"B": b"1"}),
        (b"", SLURMS),
        (b"C='a,b',D=\"x y\"", {**SLURMS, b"C": b"'a,b'", b"D": b'"x y"'}),
        (b"'B=a,b',C=3", {**SLURMS, b"B": b"a,b", b"C": b"3"}),
        (b"C=3,C=4,=5,,D", {**SLURMS, b"C": b"4"}),
        (b"C='a,b", {**SLURMS, b"C": b"'a,b"}),
        (b"SLURM_JOB_ID=9,SLURM_LABELIO=5", {**SLURMS, b"SLURM_LABELIO": b"5"}),
        (b"C=x\ny", {**SLURMS, b"C": b"x\ny"}),
    ],
)
def test_forms_of_export(export: bytes | None, expected: dict[bytes, bytes]) -> None:
    """A variable that is kept wins over a value in the list: --export=ALL,B=2 does not change B."""
    found, everything = exports.selected(CALLER, export)
    assert (found, everything) == (expected, b"A" in expected and b"Q" in expected)


@given(st.lists(st.text("abc=' ", max_size=5).map(str.encode)))
def test_parts_without_quotes_are_those_between_commas(parts: list[bytes]) -> None:
    """An empty end is none."""
    plain = [part.replace(b"'", b"") for part in parts]
    expected = b",".join(plain).split(b",")
    assert list(exports.items(b",".join(plain))) == expected[: None if expected[-1] else -1]


@pytest.mark.parametrize(
    ("export", "part"), [(b"A=1,B='x", b"B='x"), (b"A='x',B", b""), (b"", b""), (b"A=\"'", b"A=\"'")]
)
def test_part_with_an_open_quote(export: bytes, part: bytes) -> None:
    assert exports.improper(export) == part
