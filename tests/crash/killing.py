"""Arms a step, kills the victim there, and puts the lab together again as its owner would: `penstock lab up`."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from penstock import wellknown
from penstock.hooks import points
from penstock.lab import spec, testing
from tests.crash import matrix
from tests.e2e import labs, semantics

Lab = testing.RunningLab
REACHED_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Trap:
    """The folder that arms crash points in a lab."""

    lab: Lab
    folder: Path

    @classmethod
    def of(cls, lab: Lab) -> Trap:
        return cls(lab, Path(os.environ[wellknown.ENV_CRASH_POINTS]))

    def arm(self, row: matrix.Row) -> None:
        self.clear()
        (self.folder / row.point).write_text("die" if row.dies_there else "hold")

    def clear(self) -> None:
        """Nothing is armed and nobody waits."""
        for path in self.folder.iterdir():
            path.unlink()

    def spring(self, row: matrix.Row, node: str) -> None:
        """Wait until the step is reached, see the victim dead, and let whoever waits there go on."""
        mark = self.folder / f"{row.point}{points.SUFFIX}"
        semantics.wait_until(mark.exists, f"{row.point} is reached", timeout=REACHED_SECONDS)
        if not row.dies_there:
            labs.kill(self.lab.place, self.component(row.victim, node))
        mark.unlink()

    def component(self, victim: str, node: str) -> str:
        """The lab's name of a victim."""
        real = testing.kubernetes() == spec.REAL
        names = {"api": "kube-apiserver" if real else "devcluster", "slurmd": f"slurmd-{node}"}
        return names.get(victim, victim)

    def repair(self) -> None:
        testing.lab_command(self.lab.place, "up")
