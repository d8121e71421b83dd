"""Which request meets which fault: rules as data, and the seeded chance that decides.

A rule names the verbs and resources it is for (none means all), how likely it strikes, and how often at most.
What strikes requests: delay, status, hang, cut (before the server hears of it), swallow (the server does it,
the answer is lost), half (the answer breaks off in its middle), empty and partial (lists), gone (410),
unreachable (no connection stays). What strikes single events of a watch: drop, stale (the version before
follows the newer one), reorder (an event changes places with the next), freeze (nothing comes any more,
though the connection stays).
"""

from __future__ import annotations

import asyncio
import collections
import random
from typing import Literal

import msgspec

from penstock_lab.faultproxy import kuberequests

Fault = Literal[
    "delay",
    "status",
    "hang",
    "cut",
    "swallow",
    "half",
    "empty",
    "partial",
    "gone",
    "unreachable",
    "drop",
    "stale",
    "reorder",
    "freeze",
]


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One thing that goes wrong."""

    fault: Fault
    verbs: tuple[str, ...] = ()
    """get, list, watch, create, bind, update, delete, log, exec."""
    resources: tuple[str, ...] = ()
    chance: float = 1.0
    times: int = 0
    """How often at most; 0 for as long as the rule stands."""
    seconds: float = 0.0
    """Of a delay; of a status, what Retry-After says."""
    status: int = 503
    keep: float = 0.5
    """The part of a list that is left."""

    def is_for(self, request: kuberequests.Request) -> bool:
        return (not self.verbs or request.verb in self.verbs) and (
            not self.resources or request.resource in self.resources
        )


class Faults:
    """The rules that stand now, and what has been asked so far."""

    def __init__(self, *, seed: int = 0) -> None:
        self.chance = random.Random(seed)  # noqa: S311  # repeatable on purpose
        self.changed = asyncio.Event()
        self.requests: collections.Counter[str] = collections.Counter()
        self.struck: collections.Counter[str] = collections.Counter()
        self._rules: tuple[Rule, ...] = ()
        self._left: dict[int, int] = {}

    def set(self, rules: tuple[Rule, ...]) -> None:
        """From now on these and no others; whoever waits is told."""
        self._rules = rules
        self._left = {number: rule.times for number, rule in enumerate(rules) if rule.times}
        old, self.changed = self.changed, asyncio.Event()
        old.set()

    def count(self, request: kuberequests.Request) -> None:
        self.requests[f"{request.verb} {request.resource}"] += 1

    def strikes(self, fault: Fault, request: kuberequests.Request) -> Rule | None:
        """The rule by which this fault meets this request now, if there is one."""
        for number, rule in enumerate(self._rules):
            if rule.fault == fault and rule.is_for(request) and self._draw(number, rule):
                self.struck[fault] += 1
                return rule
        return None

    def _draw(self, number: int, rule: Rule) -> bool:
        if self._left.get(number, 1) <= 0 or self.chance.random() >= rule.chance:
            return False
        if number in self._left:
            self._left[number] -= 1
        return True
