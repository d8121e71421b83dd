"""How attempts of jobs ended, as Slurm's accounting has it; slurmctld's own memory where there is none.

A requeued job has a record for each attempt, told apart by when it started. Comments are not asked for: they
are users' text and may hold anything, also what looks like another job's record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from penstock import errors
from penstock.model import numbers, states
from penstock.slurm import commands, fields

_FIELDS = (
    *("JobIDRaw", "JobID", "UID", "State", "ExitCode", "Submit", "Start", "End"),
    *("Account", "Partition", "QOS", "JobName"),
)
OWNER_UNKNOWN = 0
"""The uid of a row whose attempt ended before slurmdbd was told of its start. In time the true one comes, but
perhaps never for an attempt that was sent back."""
_LONGEST_COMMENT = 4096
_CLOCK_SLACK = 2.0  # Slurm counts whole seconds
_LINE = re.compile(r"^ {3}(\w+)=(\S*)", re.MULTILINE)
_HEAD = re.compile(r"JobId=(\d{1,20})(?: ArrayJobId=(\d{1,20}) ArrayTaskId=(\d{1,20}))? ")


class EndedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt's record; times are seconds since 1970."""

    job_id: int
    shown_id: str
    """20_3 for a task of an array."""
    uid: int
    state: str
    exit_code: str
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    account: str = ""
    partition: str = ""
    qos: str = ""
    name: str = ""

    @property
    def may_change(self) -> bool:
        """Slurm tells of an end that it brought about itself first and of the exit code a moment later."""
        return self.state in states.CODE_COMES_LATER and self.exit_code == "0:0"


async def ended(slurm_conf: str, job_ids: Iterable[int]) -> tuple[EndedAttempt, ...]:
    """All ended attempts of these jobs."""
    wanted = ",".join(str(job_id) for job_id in job_ids)
    separator = fields.made_up()
    argv = ["sacct", "--noheader", "--parsable", f"--delimiter={separator}", "--allocations", "--allusers"]
    argv += ["--duplicates", f"--jobs={wanted}", f"--format={','.join(_FIELDS)}"]
    text = await commands.run(argv, slurm_conf=slurm_conf)
    rows = map(_row, fields.rows(text, separator, len(_FIELDS)))
    return tuple(row for row in rows if row is not None and row.ended is not None)


async def set_comment(slurm_conf: str, job_id: int, text: str) -> None:
    """On a job that has ended, of which slurmctld takes none any more."""
    said = "".join(each if each.isprintable() else " " for each in text[:_LONGEST_COMMENT])
    where = ("where", f"jobid={job_id}", "set", f"comment={said}")
    await commands.run(("sacctmgr", "--immediate", "modify", "job", *where), slurm_conf=slurm_conf)


def _row(words: Sequence[str]) -> EndedAttempt | None:
    first, shown, third, state, code, submitted, started, ended, account, partition, qos, name = words
    job_id, uid = numbers.natural(first), numbers.natural(third)
    if job_id is None or uid is None:
        return None
    word = state.split()[0] if state else ""
    return EndedAttempt(
        job_id=job_id,
        shown_id=shown,
        uid=uid,
        state=states.JobState.REQUEUED if word in states.SENT_BACK else word,
        exit_code=code,
        submitted=_seconds(submitted),
        started=_seconds(started),
        ended=_seconds(ended),
        account=account,
        partition=partition,
        qos=qos,
        name=name,
    )


def _seconds(text: str) -> float | None:
    seconds = numbers.natural(text)
    return float(seconds) if seconds else None


def attempt_among(
    rows: Iterable[EndedAttempt], *, job_id: int, uid: int, launched: float
) -> EndedAttempt | None:
    """The attempt that was launched then: the last that had started by that time, if it is this user's."""
    began = [
        (row.started, row)
        for row in rows
        if row.job_id == job_id and row.uid == uid and row.started is not None
        if row.started <= launched + _CLOCK_SLACK
    ]
    found = max(began, key=lambda pair: pair[0], default=(0.0, None))[1]
    still = found is not None and found.ended is not None and found.ended < launched - _CLOCK_SLACK
    return None if still else found


async def remembered(slurm_conf: str, job_id: int, *, uid: int, restart: int) -> EndedAttempt | None:
    """The same from slurmctld, for MinJobAge after the end; of an attempt that was sent back, only that."""
    try:
        text = await commands.run(("scontrol", "show", "job", str(job_id)), slurm_conf=slurm_conf)
    except errors.SlurmUnavailable:
        raise
    except errors.SlurmError:
        return None
    return remembered_in(text, job_id, uid=uid, restart=restart)


def remembered_in(text: str, job_id: int, *, uid: int, restart: int) -> EndedAttempt | None:
    """From what scontrol printed; only fields that begin a line are read, and the first of each name: no
    user's text is that. An array's number brings its other tasks, too: after the one that has it, or alone.
    """
    text = text.partition("\n\nJobId=")[0]
    head = _HEAD.match(text)
    said = {match[1]: match[2] for match in reversed(list(_LINE.finditer(text)))}
    restarts = re.search(r"^ {3}Requeue=\d+ Restarts=(\d{1,20}) ", text, re.MULTILINE)
    if (
        head is None
        or int(head[1]) != job_id
        or restarts is None
        or not said.get("UserId", "").endswith(f"({uid})")
    ):
        return None
    shown = f"{head[2]}_{head[3]}" if head[2] else head[1]
    found = EndedAttempt(
        job_id=int(head[1]),
        shown_id=shown,
        uid=uid,
        state=states.JobState.REQUEUED,
        exit_code="0:0",
        partition=said.get("Partition", ""),
    )
    if int(restarts[1]) > restart:
        return found
    code = re.search(r"^ {3}Requeue=.* ExitCode=(\S+)", text, re.MULTILINE)
    state = said.get("JobState", "")
    if int(restarts[1]) < restart or state not in states.OVER or code is None:
        return None
    return msgspec.structs.replace(found, state=state, exit_code=code[1])
