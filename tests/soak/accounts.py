"""The jobs' accounting records, one of each job.

That is the latest, with one exception. A slurmctld that is stopped while a PrologSlurmctld refuses a job may
exit without saving its state ("can not save state" in its log): slurmdbd then has the requeue, which the next
slurmctld does not know. The job continues, and its end is in the previous record, while the latest stays
pending. Plain Slurm does the same.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import re
from collections.abc import Iterable, Sequence
from operator import attrgetter

from tests.e2e import semantics

FIELDS = "JobID,JobIDRaw,JobName,State,ExitCode,Submit,End,Comment"
_UNSAVED = re.compile(r"^\[([^].]+)[^]]*\] error: .*can not save state$", re.MULTILINE)
_SLACK = datetime.timedelta(seconds=2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A line of sacct."""

    shown_id: str
    job_id: str
    name: str
    state: str
    code: str
    submitted: str
    end: str
    comment: str

    @property
    def has_ended(self) -> bool:
        return self.end != "Unknown" and self.state not in semantics.NOT_THE_END


def parse(text: str) -> list[Record]:
    """Records from `sacct -nP` with FIELDS, in sacct's order: by job, then by creation time."""
    names = [field.name for field in dataclasses.fields(Record)]
    rows = (line.split("|", FIELDS.count(",")) for line in text.split("\n") if line)
    return [Record(**dict(zip(names, row, strict=True))) for row in rows]


def unsaved_stops(log: str) -> list[datetime.datetime]:
    """When slurmctld exited without saving its state, by its log."""
    return [datetime.datetime.fromisoformat(moment) for moment in _UNSAVED.findall(log)]


def that_count(
    records: Iterable[Record], stops: Sequence[datetime.datetime]
) -> tuple[list[Record], list[Record]]:
    """One record of each job, and those that a stopped slurmctld has left open."""
    counting, left_open = [], []
    for _, group in itertools.groupby(sorted(records, key=attrgetter("job_id")), attrgetter("job_id")):
        *earlier, latest = group
        if earlier and earlier[-1].has_ended and _is_left_open(latest, stops):
            left_open.append(latest)
            latest = earlier[-1]
        counting.append(latest)
    return counting, left_open


def _is_left_open(record: Record, stops: Sequence[datetime.datetime]) -> bool:
    made = datetime.datetime.fromisoformat(record.submitted)
    return record.state == "PENDING" and any(abs(made - stop) <= _SLACK for stop in stops)
