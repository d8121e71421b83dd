"""A check from its first look to its verdict, once or for ever."""

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
    """What is proven; `unknown` says which side did not answer, and then an empty list means nothing."""

    violations: tuple[snapshots.Violation, ...] = ()
    unknown: str = ""
    settled: bool = True
    """Whether looking again would add nothing."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What the latest look has changed."""

    report: Report
    appeared: tuple[snapshots.Violation, ...] = ()
    gone: tuple[snapshots.Violation, ...] = ()


@dataclasses.dataclass
class Checker:
    """Looks, judges, confirms."""

    see: Callable[[], Awaitable[snapshots.Snapshot]]
    clock: clock.Clock
    confirmer: confirmed.Confirmer = dataclasses.field(default_factory=confirmed.Confirmer)
    proven: tuple[snapshots.Violation, ...] = ()
    has_seen: bool = False
    """Whether a look has ever shown anything."""

    async def look(self) -> Report:
        """One look. What it saw was so before it ended, so its time is when it began.

        UsageError when already the first look shows that the call is wrong.
        """
        at = self.clock.now()
        try:
            seen = await self.see()
        except (errors.KubeError, errors.SlurmError) as error:
            return self._nothing_known(error)
        except errors.UsageError as error:
            if not self.has_seen:
                raise
            return self._nothing_known(error)  # the call was right a moment ago: a watch goes on
        self.has_seen = True
        verdict = self.confirmer.look(invariants.judge(seen), at=at)
        self.proven = verdict.violations
        return Report(
            violations=verdict.violations,
            unknown="" if seen.daemon else NO_DAEMON,
            settled=not verdict.suspicions,
        )

    def _nothing_known(self, error: errors.PenstockError) -> Report:
        return Report(violations=self.proven, unknown=error.message)

    async def once(self) -> Report:
        """Look until there is nothing left to wait for: at once when all is well."""
        pause = FIRST_PAUSE
        while not (report := await self.look()).settled:
            await self.clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        return report

    async def forever(self, *, interval: float) -> AsyncIterator[Change]:
        """What each look has changed; the next comes sooner while something is suspected."""
        known: dict[tuple[str, str], snapshots.Violation] = {}
        while True:
            report = await self.look()
            now = {(one.kind, one.subject): one for one in report.violations}
            appeared = tuple(one for key, one in now.items() if key not in known)
            gone = tuple(one for key, one in known.items() if key not in now)
            known = now
            yield Change(report=report, appeared=appeared, gone=gone)
            await self.clock.sleep(interval if report.settled else min(interval, LONGEST_PAUSE))
