"""Runs the check: snapshots are taken until the findings are confirmed or gone, once or in a loop."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from penstock import clock, errors
from penstock.audit import confirmed, invariants, snapshots

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 2.0
NO_DAEMON = "penstockd does not answer"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Confirmed violations. If `unknown` says what did not answer, an empty list proves nothing."""

    violations: tuple[snapshots.Violation, ...] = ()
    unknown: str = ""
    settled: bool = True
    """No finding is waiting for confirmation."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What changed since the previous look."""

    report: Report
    appeared: tuple[snapshots.Violation, ...] = ()
    gone: tuple[snapshots.Violation, ...] = ()


@dataclasses.dataclass
class Checker:
    see: Callable[[], Awaitable[snapshots.Snapshot]]
    clock: clock.Clock
    confirmer: confirmed.Confirmer = dataclasses.field(default_factory=confirmed.Confirmer)
    proven: tuple[snapshots.Violation, ...] = ()
    has_seen: bool = False

    async def look(self) -> Report:
        """Take and judge one snapshot, dated by when it began.

        Raises UsageError only at the first look; later the command line is known to be right.
        """
        at = self.clock.now()
        try:
            seen = await self.see()
        except (errors.KubeError, errors.SlurmError, errors.UsageError) as error:
            if isinstance(error, errors.UsageError) and not self.has_seen:
                raise
            return Report(violations=self.proven, unknown=error.message)
        self.has_seen = True
        verdict = self.confirmer.look(invariants.judge(seen), at=at)
        self.proven = verdict.violations
        return Report(
            violations=verdict.violations,
            unknown="" if seen.daemon else NO_DAEMON,
            settled=not verdict.suspicions,
        )

    async def once(self) -> Report:
        """Look until every finding is confirmed or gone; a single look if there is none."""
        pause = FIRST_PAUSE
        while not (report := await self.look()).settled:
            await self.clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        return report

    async def forever(self, *, interval: float) -> AsyncIterator[Change]:
        """The changes of each look; the next look comes sooner while a finding is unconfirmed."""
        known: dict[tuple[str, str], snapshots.Violation] = {}
        while True:
            report = await self.look()
            now = {(one.kind, one.subject): one for one in report.violations}
            appeared = tuple(one for key, one in now.items() if key not in known)
            gone = tuple(one for key, one in known.items() if key not in now)
            known = now
            yield Change(report=report, appeared=appeared, gone=gone)
            await self.clock.sleep(interval if report.settled else min(interval, LONGEST_PAUSE))
