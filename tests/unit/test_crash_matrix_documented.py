"""docs/invariants.md shows the crash matrix as it is."""

from __future__ import annotations

import re
from pathlib import Path

from tests.crash import matrix

ROOT = Path(__file__).resolve().parent.parent.parent


def reached_in_the_code() -> set[str]:
    """Every step that is named in the source."""
    pattern = re.compile(r'crashpoints\.reach\("([a-z.-]+)"\)|crash point: ([a-z.-]+)')
    files = [path for path in (ROOT / "src/penstock").rglob("*") if path.suffix in (".py", ".lua")]
    return {one or other for path in files for one, other in pattern.findall(path.read_text())}


def test_every_row_is_in_the_table() -> None:
    """And nothing else is."""
    text = (ROOT / "docs/invariants.md").read_text()
    shown = re.findall(r"^\| `([a-z.-]+)` \| (\w+) \| (\w+) \| ([a-z ]+) \|$", text, re.MULTILINE)
    assert shown == [(row.point, row.victim, row.shape, " or ".join(row.ends)) for row in matrix.ROWS]


def test_every_step_of_the_matrix_is_in_the_code_and_the_other_way_round() -> None:
    """No row waits for a step that nobody reaches, no step is left untried; at least 25 of them."""
    points = {row.point for row in matrix.ROWS}
    assert points == reached_in_the_code()
    assert len(points) >= 25
