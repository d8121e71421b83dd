"""What penstockd knows of Slurm itself, asked for again after a minute."""

from __future__ import annotations

from penstock import clock
from penstock.bridge import protocols
from penstock.model.slurmfacts import SlurmFacts

SECONDS = 60.0


class CachedFacts:
    def __init__(self, slurm: protocols.Slurm, time: clock.Clock) -> None:
        self._slurm, self._clock = slurm, time
        self._facts: SlurmFacts | None = None
        self._until = 0.0

    async def now(self) -> SlurmFacts:
        """Raises SlurmError if they were never known."""
        if self._facts is None or self._clock.now() >= self._until:
            self._facts = await self._slurm.facts()
            self._until = self._clock.now() + SECONDS
        return self._facts
