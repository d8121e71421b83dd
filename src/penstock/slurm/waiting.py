"""Jobs in the queue as Slurm's commands print them: what keeps them from nodes, and until when they wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock import errors
from penstock.model import jobs, numbers
from penstock.slurm import hostlists, marks

QUEUE_FIELDS = "JobID:|,StateCompact:|,PriorityLong:|,Reason:|"
MARK_FIELDS = ("JobID", "admin_comment")
FIELDS = ("StateCompact", "ReqNodes", "Reservation", "EligibleTime", "Feature", "admin_comment")
EXCLUDED = "%A|%x"
PENDING = "PD"
_UNSET = ("", "(null)", "N/A")


def waiting_job(row: Sequence[str], names: str, job_id: int) -> jobs.WaitingJob | None:
    """A job from squeue's FIELDS and EXCLUDED; None when it does not wait, or is not ours."""
    state, required, reservation, eligible, features, comment = row
    mark = marks.read(comment)
    if state != PENDING or mark is None:
        return None
    return jobs.WaitingJob(
        job_id=job_id,
        admin_comment=comment,
        excluded=() if names in _UNSET else hostlists.expand(names),
        avoids=mark.avoids,
        until=mark.until,
        begins=numbers.natural(eligible) or 0,
        is_fixed=required not in _UNSET or reservation not in _UNSET,
        features=features not in _UNSET,
    )


def excluded(text: str, job_id: int) -> str:
    """ExcNodeList from `squeue -h` with EXCLUDED."""
    rows = (line.partition("|") for line in text.split("\n"))
    return next((names.strip() for number, _, names in rows if number.strip() == str(job_id)), "")


def queued(text: str) -> tuple[jobs.Queued, ...]:
    """Jobs from `squeue -h -O` with QUEUE_FIELDS."""
    return tuple(_queued(line) for line in text.split("\n") if line.strip())


def _queued(line: str) -> jobs.Queued:
    fields = [field.strip() for field in line.split("|")]
    try:
        return jobs.Queued(
            job_id=int(fields[0]),
            is_pending=fields[1] == PENDING,
            priority=int(fields[2]),
            reason=fields[3],
        )
    except (ValueError, IndexError):
        raise errors.SlurmError(f"squeue printed a line that we do not understand: {line[:120]!r}") from None


def put_off(rows: Iterable[Sequence[str]]) -> tuple[int, ...]:
    """Jobs that penstockd keeps from nodes or lets wait, from squeue's MARK_FIELDS."""
    found = ((job_id, marks.read(comment)) for job_id, comment in rows)
    return tuple(int(job_id) for job_id, mark in found if mark and (mark.avoids or mark.until))
