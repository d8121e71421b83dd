"""Arms a step, kills the victim there, and repairs the lab as its owner would: `penstock lab up`."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from penstock import wellknown
from penstock.hooks import points
from penstock.lab import components, spec, testing
from penstock.lab.kubernetes import controlplane
from tests.crash import matrix
from tests.e2e import labs, semantics

Lab = testing.RunningLab
REACHED_SECONDS = 100


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

    def spring(self, row: matrix.Row, job_id: str) -> None:
        """Wait until the step is reached, see the victim dead, and let whoever waits there go on."""
        mark = self.folder / f"{row.point}{points.SUFFIX}"
        semantics.wait_until(mark.exists, f"{row.point} is reached", timeout=REACHED_SECONDS)
        if not row.dies_there:
            if row.victim == "slurmctld" and job_id:
                self.wait_until_written_down()
            labs.kill(self.lab.place, self.component(row.victim, job_id))
        mark.unlink()

    def wait_until_written_down(self) -> None:
        """slurmctld writes its state some seconds late: what it has not written, it forgets when killed."""
        file = self.lab.place.controller_state / "job_state"
        before = file.stat().st_mtime_ns if file.exists() else 0
        another = self.lab.sbatch("#!/bin/sh\ntrue\n", "--hold", "--partition=host", "--output=/dev/null")
        semantics.wait_until(
            lambda: file.exists() and file.stat().st_mtime_ns > before, "slurmctld has written its state"
        )
        self.lab.run(("scancel", another))

    def component(self, victim: str, job_id: str) -> str:
        """The lab's name of a victim."""
        if victim == "slurmd":
            return f"slurmd-{self.lab.job(job_id)['BatchHost']}"
        if victim == "api":
            return controlplane.APISERVER if testing.kubernetes() == spec.REAL else components.DEVCLUSTER
        return victim

    def repair(self) -> None:
        """Whatever is dead is started, whatever is not is left alone."""
        if any(pid is None for pid in labs.pids(self.lab.place).values()):
            testing.lab_command(self.lab.place, "up")
