"""Rules between options that hold in some releases of Slurm only, read from rules.txt.

The table says which were tested on which release, and which are only documented.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from penstock.sbatch import options


class Rule(msgspec.Struct, frozen=True):
    """A row; `since` and `until` are the first and last release, empty for no bound."""

    name: str
    since: str
    until: str
    evidence: str
    meaning: str


@lru_cache(maxsize=1)
def every_rule() -> dict[str, Rule]:
    rules = (Rule(*line.split("|")) for line in options.lines_of("rules.txt"))
    return {rule.name: rule for rule in rules}


def holds(name: str, release: str) -> bool:
    """Whether the rule holds in this release."""
    rule = every_rule()[name]
    return rule.since <= release and (not rule.until or release <= rule.until)
