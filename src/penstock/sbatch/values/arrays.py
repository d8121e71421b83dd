"""--array: ids, ranges with steps, and how many may run at once. slurmctld checks it, by these rules."""

from __future__ import annotations

import itertools
import re
from typing import Final

from penstock.model.jobspec import ArraySpec
from penstock.sbatch.patterns import Pattern
from penstock.sbatch.values.problem import Problem

MAX_IDS: Final = 4_000_001
"""The largest MaxArraySize Slurm can be configured to."""

_RANGE = Pattern(r"[ \t]*\+?([0-9]+)(?:-\+?([0-9]+)(?::\+?([0-9]+))?)?")
_LIMIT = Pattern(r"%([0-9]*)")


def array(text: str) -> ArraySpec | None:
    """The ids in order; an empty text is no array."""
    if not text:
        return None
    found = _LIMIT.search(text)
    limit = int((found.group(1) or "0")[:9]) if found else 0
    body = _LIMIT.sub("", text).partition("%")[0] if found is None else _without_limit(text)
    ids = _ids(body.strip("[]"), text)
    ordered = sorted(ids)
    step = _common_step(ordered)
    return ArraySpec(text, len(ordered), ordered[0], ordered[-1], step, tuple(ordered), limit)


def _without_limit(text: str) -> str:
    """Slurm cuts the first %number out and reads on; from a second one it stops."""
    cut = re.sub(r"%[0-9]*[a-zA-Z]*", "", text, count=1)
    return cut.partition("%")[0]


def _ids(body: str, text: str) -> set[int]:
    ids: set[int] = set()
    for part in body.split(","):
        if part:
            ids.update(_one(part, text))
    return ids or {0}


def _one(part: str, text: str) -> range:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise Problem(f"{text!r} is no list of array ids", "as in 0-15, 1,3,5-7, 0-15:4 or 1-100%8")
    low = int(match.group(1)[:9])
    high = int((match.group(2) or match.group(1))[:9])
    step = int((match.group(3) or "1")[:9])
    if high < low or step == 0 or high >= MAX_IDS:
        raise Problem(f"{part!r} is no range of array ids", _range_hint(low, high, step))
    return range(low, high + 1, step)


def _range_hint(low: int, high: int, step: int) -> str:
    if step == 0:
        return "the step must be above 0"
    return f"write {high}-{low}" if high < low else f"ids end at {MAX_IDS - 1}"


def _common_step(ordered: list[int]) -> int:
    if len(ordered) < 2:
        return 1
    step = ordered[1] - ordered[0]
    regular = ordered[-1] - ordered[0] == step * (len(ordered) - 1)
    return step if regular and all(b - a == step for a, b in itertools.pairwise(ordered)) else 0
