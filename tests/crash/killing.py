"""Arms a step, kills the victim there, and repairs the lab as its owner would: `penstock lab up`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import signal
from pathlib import Path

from penstock import wellknown
from penstock.hooks import points
from penstock_lab import components, spec, testing
from penstock_lab.kubernetes import controlplane
from tests.crash import matrix
from tests.e2e import labs, semantics

Lab = testing.RunningLab
REACHED_SECONDS = 100
GONE_SECONDS = 20


@dataclasses.dataclass(frozen=True)
class Trap:
    """The folder with a lab's armed crash points."""

    lab: Lab
    folder: Path

    @classmethod
    def of(cls, lab: Lab) -> Trap:
        return cls(lab, Path(os.environ[wellknown.ENV_CRASH_POINTS]))

    def arm(self, row: matrix.Row) -> None:
        self.clear()
        (self.folder / row.point).touch()

    def clear(self) -> None:
        """Disarm everything and release waiting processes."""
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)

    def wait(self, row: matrix.Row) -> None:
        """Wait until a process has reached the step."""
        mark = self._mark(row)
        semantics.wait_until(
            lambda: mark.exists() and (mark.read_text().endswith("\n") or row.inside_slurmctld),
            f"{row.point} is reached",
            timeout=REACHED_SECONDS,
        )

    def kill(self, row: matrix.Row, job_id: str) -> None:
        """Kill the victim, then release the process at the step."""
        if row.dies_there:
            end(int(self._mark(row).read_text()))
        else:
            if row.victim == "slurmctld" and job_id:
                self.wait_until_written_down()
            labs.kill(self.lab.place, self.component(row.victim, job_id))
        self._mark(row).unlink()

    def _mark(self, row: matrix.Row) -> Path:
        return self.folder / f"{row.point}{points.SUFFIX}"

    def wait_until_written_down(self) -> None:
        """slurmctld saves its state with some seconds of delay; a kill loses unsaved changes."""
        name = f"younger-{secrets.token_hex(8)}"
        options = ("--hold", "--partition=host", "--output=/dev/null", f"--job-name={name}")
        another = self.lab.sbatch("#!/bin/sh\ntrue\n", *options)
        file = self.lab.place.controller_state / "job_state"
        semantics.wait_until(lambda: is_in(file, name.encode()), "slurmctld has written its state")
        self.lab.run(("scancel", another))

    def component(self, victim: str, job_id: str) -> str:
        """The victim's component name."""
        if victim == "slurmd":
            return f"slurmd-{self.lab.job(job_id)['BatchHost']}"
        if victim == "api":
            return controlplane.APISERVER if testing.kubernetes() == spec.REAL else components.DEVCLUSTER
        return victim

    def repair(self) -> None:
        """Restart dead components with `penstock lab up`."""
        if any(pid is None for pid in labs.pids(self.lab.place).values()):
            testing.lab_command(self.lab.place, "up")


def end(pid: int) -> None:
    """SIGKILL, and wait until the process is gone or a zombie.

    Slurm may have been faster: it kills the hooks and the launcher of a cancelled job.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    semantics.wait_until(lambda: is_dead(pid), f"{pid} is dead", timeout=GONE_SECONDS)


def is_in(file: Path, text: bytes) -> bool:
    """Whether the file exists; slurmctld replaces it."""
    with contextlib.suppress(FileNotFoundError):
        return text in file.read_bytes()
    return False


def is_dead(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state in "ZX"
    return True
