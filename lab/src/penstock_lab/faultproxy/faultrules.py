"""Rules that decide which fault hits which request, with a seeded random generator.

A rule has the verbs and resources it applies to (none means all), its probability and its maximum count.
Faults of requests: delay, status, hang, cut (connection closed before the server sees the request), swallow
(the server acts, the response is lost), half (the response ends in the middle), empty and partial (lists),
gone (410), unreachable (all connections closed). Faults of single watch events: drop, stale (the previous
version follows the newer one), reorder (swapped with the next event), freeze (no more events, though the
connection stays).
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
    """One kind of fault and when it happens."""

    fault: Fault
    verbs: tuple[str, ...] = ()
    """get, list, watch, create, bind, update, delete, log, exec."""
    resources: tuple[str, ...] = ()
    chance: float = 1.0
    times: int = 0
    """Maximum count; 0 for no limit."""
    seconds: float = 0.0
    """Length of a delay; Retry-After of a status."""
    status: int = 503
    keep: float = 0.5
    """The fraction of a list that is kept."""

    def is_for(self, request: kuberequests.Request) -> bool:
        return (not self.verbs or request.verb in self.verbs) and (
            not self.resources or request.resource in self.resources
        )


class Faults:
    """The current rules, and counters."""

    def __init__(self, *, seed: int = 0) -> None:
        self.chance = random.Random(seed)  # noqa: S311  # repeatable on purpose
        self.changed = asyncio.Event()
        self.requests: collections.Counter[str] = collections.Counter()
        self.struck: collections.Counter[str] = collections.Counter()
        self._rules: tuple[Rule, ...] = ()
        self._left: dict[int, int] = {}

    def set(self, rules: tuple[Rule, ...]) -> None:
        """Replace all rules and wake waiters."""
        self._rules = rules
        self._left = {number: rule.times for number, rule in enumerate(rules) if rule.times}
        old, self.changed = self.changed, asyncio.Event()
        old.set()

    def count(self, request: kuberequests.Request) -> None:
        self.requests[f"{request.verb} {request.resource}"] += 1

    def strikes(self, fault: Fault, request: kuberequests.Request) -> Rule | None:
        """The rule by which this fault hits this request, if any; counts it."""
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
