"""Jobs in the queue as Slurm's commands print them: what keeps them from nodes, and until when they wait."""

from __future__ import annotations

import re

from penstock import errors
from penstock.model import jobs
from penstock.slurm import hostlists, marks, parsing

QUEUE_FIELDS = "JobID:|,StateCompact:|,PriorityLong:|,Reason:|"
MARK_FIELDS = "JobID:|,admin_comment:|"
PENDING = "PD"

_NODES_LINE = re.compile(r"^ {3}ReqNodeList=(\S+) ExcNodeList=(\S+)", re.MULTILINE)
_STATE_LINE = re.compile(r"^ {3}JobState=PENDING ", re.MULTILINE)
_FEATURES_LINE = re.compile(r"^ {3}Features=(\S+) DelayBoot=", re.MULTILINE)
_RESERVATION_LINE = re.compile(r"^ {3}Reservation=(\S+)", re.MULTILINE)
_ELIGIBLE = re.compile(r"^ {3}SubmitTime=\S+ EligibleTime=(\d{1,15})", re.MULTILINE)


def waiting_job(text: str, job_id: int) -> jobs.WaitingJob | None:
    """A job from `scontrol show job` with times in seconds; None when it does not wait, or is not ours."""
    comment, nodes = parsing.admin_comment(text), _NODES_LINE.search(text)
    mark = marks.read(comment)
    if _STATE_LINE.search(text) is None or mark is None or nodes is None:
        return None
    eligible, features = _ELIGIBLE.search(text), _FEATURES_LINE.search(text)
    return jobs.WaitingJob(
        job_id=job_id,
        admin_comment=comment,
        excluded=() if nodes[2] == "(null)" else hostlists.expand(nodes[2]),
        avoids=mark.avoids,
        until=mark.until,
        begins=int(eligible[1]) if eligible else 0,
        is_fixed=nodes[1] != "(null)" or _RESERVATION_LINE.search(text) is not None,
        features=features is not None and features[1] != "(null)",
    )


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


def put_off(text: str) -> tuple[int, ...]:
    """Jobs that penstockd keeps from nodes or lets wait, from `squeue -h -O` with MARK_FIELDS."""
    rows = (line.partition("|") for line in text.split("\n"))
    found = ((job_id, marks.read(comment)) for job_id, _, comment in rows if job_id.strip().isdigit())
    return tuple(int(job_id) for job_id, mark in found if mark and (mark.avoids or mark.until))
