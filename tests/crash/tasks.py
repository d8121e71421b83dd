"""A submitted job of the crash matrix by task: its folders and output."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent import futures
from pathlib import Path

from penstock_lab import testing
from tests.e2e import semantics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A job, or one task of an array."""

    job_id: str
    output: Path
    ran: Path
    """Has a line for each run of the script."""

    @property
    def text(self) -> str:
        return self.output.read_text() if self.output.exists() else ""

    @property
    def runs(self) -> int:
        """Number of runs of the script."""
        return len(self.ran.read_text().splitlines()) if self.ran.exists() else 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """The tasks of one submission."""

    job_id: str
    folder: Path
    tasks: tuple[Task, ...]
    meanwhile: list[futures.Future[object]] = dataclasses.field(default_factory=list)
    """A background command that ends only after the kill."""

    def begun(self) -> None:
        """Wait until every script has written its first line."""
        semantics.wait_until(
            lambda: all("begin\n" in task.text for task in self.tasks), "the script has begun"
        )


Act = Callable[[testing.RunningLab, Job], None]


def nothing(lab: testing.RunningLab, job: Job) -> None:
    """The job is left alone."""
