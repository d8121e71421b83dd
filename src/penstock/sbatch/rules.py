"""Rules between options that hold in some releases of Slurm only, read from rules.txt.

Data and not conditions in code, so that one place says what was seen on which release and what was only read.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec


class Rule(msgspec.Struct, frozen=True):
    """One row; `since` and `until` are the first and last release it holds in, empty for no bound."""

    name: str
    since: str
    until: str
    evidence: str
    meaning: str


@lru_cache(maxsize=1)
def every_rule() -> dict[str, Rule]:
    """All rows of rules.txt by name."""
    beside = __file__.rpartition("/")[0]
    with open(f"{beside}/rules.txt", encoding="utf-8") as lines:  # noqa: PTH123 - as options.py does it
        rows = [Rule(*line.rstrip("\n").split("|")) for line in lines if not line.startswith("#")]
    return {row.name: row for row in rows}


def holds(name: str, release: str) -> bool:
    """Whether sbatch of that release goes by the rule."""
    rule = every_rule()[name]
    return rule.since <= release and (not rule.until or release <= rule.until)
