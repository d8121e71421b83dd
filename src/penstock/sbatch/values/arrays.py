"""--array by slurmctld's rules: ids, ranges with steps, and how many tasks may run at once."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Final

from penstock.model.jobspec import ArraySpec
from penstock.sbatch.patterns import Pattern
from penstock.sbatch.values.problem import Problem

MAX_IDS: Final = 4_000_001
"""The largest possible MaxArraySize."""

MOST_LISTED: Final = 100_000
"""The ids of larger arrays are only counted."""

_RANGE = Pattern(r"[ \t]*\+?([0-9]+)(?:-\+?([0-9]+)(?::\+?([0-9]+))?)?")
_STEP = Pattern(r":\+?([0-9]+)")
_LIMIT = Pattern(r"%([0-9]*)")


def array(text: str) -> ArraySpec | None:
    """The ids in order; None for an empty text."""
    if not text:
        return None
    found = _LIMIT.search(text)
    limit = int((found.group(1) or "0")[:9]) if found else 0
    # Slurm removes the first %number and stops at a second one.
    body = re.sub(r"%[0-9]*[a-zA-Z]*", "", text, count=1).partition("%")[0]
    marked = _marked(body.strip("[]"), text)
    count, first, last = marked.count(1), marked.find(1), marked.rfind(1)
    ids = tuple(_listed(marked, first)) if count <= MOST_LISTED else ()
    return ArraySpec(text, count, first, last, _common_step(ids), ids, limit)


def _marked(body: str, text: str) -> bytearray:
    """A byte per id, 1 for those of the array."""
    ranges = [_one(part, text) for part in body.split(",") if part] or [range(1)]
    marked = bytearray(max(numbers[-1] for numbers in ranges) + 1)
    for numbers in _merged(ranges):
        marked[numbers.start : numbers[-1] + 1 : numbers.step] = b"\1" * len(numbers)
    return marked


def _merged(ranges: list[range]) -> Iterator[range]:
    """Merge overlapping ranges with the same step, so that thousands of them cost hardly more than one."""
    rows: dict[tuple[int, int], list[range]] = {}
    for numbers in ranges:
        rows.setdefault((numbers.step, numbers.start % numbers.step), []).append(numbers)
    for (step, _), row in rows.items():
        row.sort(key=lambda numbers: numbers.start)
        start, last = row[0].start, row[0][-1]
        for numbers in row[1:]:
            if numbers.start > last + step:
                yield range(start, last + 1, step)
                start = last = numbers.start
            last = max(last, numbers[-1])
        yield range(start, last + 1, step)


def _listed(marked: bytearray, position: int) -> Iterator[int]:
    while position >= 0:
        yield position
        position = marked.find(1, position + 1)


def _one(part: str, text: str) -> range:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise Problem(f"{text!r} is not a valid list of array ids", "as in 0-15, 1,3,5-7, 0-15:4 or 1-100%8")
    low = int(match.group(1)[:9])
    high = int((match.group(2) or match.group(1))[:9])
    step = int((match.group(3) or "1")[:9])
    if high < low or step == 0 or max(high, step) >= MAX_IDS:
        raise Problem(f"{part!r} is not a valid range of array ids", _range_hint(low, high, step))
    return range(low, high + 1, step)


def _range_hint(low: int, high: int, step: int) -> str:
    if step == 0:
        return "the step must be above 0"
    return f"write {high}-{low}" if high < low else f"ids and steps end at {MAX_IDS - 1}"


def largest_step(text: str) -> int:
    """The largest step of an array: slurmctld refuses one above MaxArraySize."""
    return max((int(found[1][:9]) for found in _STEP.finditer(text)), default=1)


def _common_step(ordered: tuple[int, ...]) -> int:
    if len(ordered) < 2:
        return 1
    step = ordered[1] - ordered[0]
    regular = ordered[-1] - ordered[0] == step * (len(ordered) - 1)
    return step if regular and all(b - a == step for a, b in itertools.pairwise(ordered)) else 0
