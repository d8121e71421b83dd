"""docs/invariants.md shows the crash matrix as it is, and the matrix judges as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.crash import matrix, shapes

ROOT = Path(__file__).resolve().parent.parent.parent
DONE, KILLED, LOST = matrix.AS_IT_SHOULD, matrix.KILLED, matrix.PODS_LOST


def reached_in_the_code() -> set[str]:
    """Every step that is named in the source."""
    pattern = re.compile(r'crashpoints\.reach\("([a-z.-]+)"\)|crash point: ([a-z.-]+)')
    files = [path for path in (ROOT / "src/penstock").rglob("*") if path.suffix in (".py", ".lua")]
    return {one or other for path in files for one, other in pattern.findall(path.read_text())}


def test_every_row_is_in_the_table() -> None:
    """And nothing else is."""
    text = (ROOT / "docs/invariants.md").read_text()
    shown = re.findall(r"^\| `([a-z.-]+)` \| (\w+) \| ([\w -]+) \| ([a-z ]+) \|$", text, re.MULTILINE)
    assert shown == [(row.point, row.victim, row.shape, " or ".join(row.ends)) for row in matrix.ROWS]


def test_every_step_of_the_matrix_is_in_the_code_and_the_other_way_round() -> None:
    """No row waits for a step that nobody reaches, no step is left untried; at least 25 of them."""
    points = {row.point for row in matrix.ROWS}
    assert points == reached_in_the_code()
    assert len(points) >= 25


def test_every_row_has_its_job_and_no_row_is_there_twice() -> None:
    """A shape that nobody knows would be a row that never runs."""
    assert {row.shape for row in matrix.ROWS} == {*shapes.SHAPES, "unanswered"}
    assert len({row.name for row in matrix.ROWS}) == len(matrix.ROWS)


def test_every_party_is_killed_and_every_one_with_arrays_cancels_and_requeues() -> None:
    """Seven parties; all of them beside an array, a scancel and a requeue."""
    parties = {"penstockd", "launcher", "prolog", "epilog", "slurmctld", "slurmd", "api"}
    for word in ("array", "cancelled", "requeued"):
        assert {row.victim for row in matrix.ROWS if word in row.shape} == parties


@pytest.mark.parametrize(
    ("allowed", "ends", "verdict"),
    [
        ((DONE,), [DONE], True),
        ((DONE,), [KILLED], False),
        ((KILLED,), [KILLED], True),
        ((KILLED,), [DONE], False),
        ((KILLED,), [DONE, KILLED, DONE], True),
        ((KILLED,), [KILLED, KILLED, DONE], False),
        ((DONE, LOST), [LOST, LOST, DONE], True),
        ((DONE, LOST), [LOST, "wrong record", DONE], False),
    ],
)
def test_of_an_array_only_the_killed_task_may_end_otherwise(
    allowed: tuple[str, ...], ends: list[str], *, verdict: bool
) -> None:
    """And it must, where its own process was killed."""
    row = matrix.Row(point="p", victim="launcher", ends=allowed)
    assert row.allows(ends) is verdict
