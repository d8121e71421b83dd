"""The steps of a random test: the same seed always gives the same steps.

A step has its own random numbers (which job, how long, how much), so it depends neither on other steps nor on
the machine's speed.
"""

from __future__ import annotations

import dataclasses
import random
import typing
from collections.abc import Iterator, Mapping

from penstock_lab.faultproxy import faultrules

WEIGHTS = {
    "submit": 40,
    "array": 8,
    "gang": 10,
    "cancel": 8,
    "requeue": 5,
    "foreign": 6,
    "delete-pod": 3,
    "node-lost": 4,
    "node-gone": 2,
    "cordon": 3,
    "fault": 9,
    "kill-penstockd": 3,
    "restart-slurmctld": 1,
}
GENTLE = {kind: WEIGHTS[kind] for kind in ("submit", "array", "gang", "cancel", "foreign", "kill-penstockd")}
"""Steps that, except `cancel`, cannot end a started job."""
FAULTS: tuple[str, ...] = typing.get_args(faultrules.Fault)
PROBABILISTIC = {"cut": 0.3, "swallow": 0.3, "half": 0.3, "drop": 0.5, "reorder": 0.5, "delay": 0.5}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """A step with its random numbers."""

    number: int
    kind: str
    pause: float
    """Seconds before the next step."""
    pick: float
    """Selects a candidate, as a fraction of their number."""
    seconds: float
    """Duration of a job or an outage."""
    amount: int
    """GPUs of a job or pod, tasks of an array."""
    code: int
    """A job's exit code."""
    fault: str


def steps(seed: int, chosen: Mapping[str, int] = WEIGHTS) -> Iterator[Step]:
    """An endless sequence of steps."""
    chance = random.Random(seed)  # noqa: S311  # repeatable on purpose
    kinds, weights = zip(*chosen.items(), strict=True)
    number = 0
    while True:
        number += 1
        yield Step(
            number=number,
            kind=chance.choices(kinds, weights)[0],
            pause=round(chance.expovariate(2.0), 3),
            pick=chance.random(),
            seconds=round(chance.uniform(0.1, 5.0), 2),
            amount=chance.randint(1, 4),
            code=chance.choice((0, 0, 0, 3, 7)),
            fault=chance.choice(FAULTS),
        )
