"""What Slurm tells people about jobs, for commands that show both worlds side by side."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable

import msgspec

from penstock import errors, wording
from penstock.model import numbers, states
from penstock.slurm import commands, fields, hostlists

_QUEUE = (
    "JobID",
    "JobArrayID",
    "UserName",
    "Name",
    "Partition",
    "State",
    "TimeUsed",
    "RestartCnt",
    "SubmitTime",
    "StartTime",
    "NodeList",
    "Reason",
)
_RECORD = (
    "JobIDRaw",
    "JobID",
    "User",
    "JobName",
    "Partition",
    "State",
    "ExitCode",
    "Elapsed",
    "NodeList",
    "Submit",
    "Start",
    "End",
    "Comment",
)
_DURATION = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,4}):)?(\d{1,4}):(\d{1,2})")
_TASKS_NAMED = 8
_LAST_SECOND = 253402300799  # of the year 9999


class QueuedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as squeue shows it."""

    job_id: int
    shown_id: str
    """20_3 for a task of an array."""
    user: str
    name: str
    partition: str
    state: str
    elapsed: int | None = None
    restarts: int = 0
    submitted: datetime.datetime | None = None
    started: datetime.datetime | None = None
    nodes: tuple[str, ...] = ()
    reason: str = ""
    """Slurm's own word for what a job waits for."""

    @property
    def array(self) -> str:
        """The number of the array that it is a task of; empty for none."""
        first, is_task, _ = self.shown_id.partition("_")
        return first if is_task else ""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job as scontrol, or after its end sacct, shows it."""

    job_id: int
    shown_id: str
    """20_3 for a task of an array, 20_[5-9] for those that wait."""
    user: str = ""
    name: str = ""
    partition: str = ""
    state: str = ""
    exit_code: int | None = None
    signal: int | None = None
    elapsed: int | None = None
    submitted: datetime.datetime | None = None
    started: datetime.datetime | None = None
    ended: datetime.datetime | None = None
    nodes: tuple[str, ...] = ()
    reason: str = ""
    """Slurm's own word for what a pending job waits for."""
    comment: str = ""
    restarts: int = 0
    stdout: str = ""
    stderr: str = ""

    @property
    def goes_on(self) -> bool:
        return self.state not in states.OVER

    @property
    def task(self) -> str:
        """Which of its array's tasks it is; empty for none."""
        return self.shown_id.partition("_")[2]


# -- the queue -------------------------------------------------------------------------------------


async def queue(slurm_conf: str, *, user: str = "") -> tuple[QueuedJob, ...]:
    """Jobs that wait or run, every task of an array for itself."""
    separator = fields.made_up()
    argv = ["squeue", "--noheader", "--array", fields.wanted(_QUEUE, separator)]
    asked = [*argv, f"--user={user}"] if user else argv
    text = await commands.run(asked, slurm_conf=slurm_conf)
    return tuple(map(_queued, fields.rows(text, separator, len(_QUEUE))))


def _queued(words: list[str]) -> QueuedJob:
    first, shown_id, user, name, partition, state, time, last, submitted, started, nodes, reason = words
    job_id, restarts = numbers.natural(first), numbers.natural(last)
    if job_id is None or restarts is None:
        raise errors.SlurmError(f"squeue printed a job that we do not understand: {words}")
    waits = state == states.JobState.PENDING
    return QueuedJob(
        job_id=job_id,
        shown_id=shown_id,
        user=user,
        name=name,
        partition=partition,
        state=state,
        elapsed=_duration(time),
        restarts=restarts,
        submitted=_moment(submitted),
        started=None if waits else _moment(started),
        nodes=_nodes(nodes),
        reason=_word(reason) if waits else "",
    )


# -- one job ---------------------------------------------------------------------------------------


async def record(slurm_conf: str, job: str) -> JobRecord:
    """One job (17 or 17_3); UsageError when the number stands for several tasks of an array."""
    found = await records(slurm_conf, job)
    if len(found) > 1:
        named = wording.some([f"{one.shown_id} {one.state}" for one in found], _TASKS_NAMED)
        raise errors.UsageError(
            f"job {job} is an array: which of its tasks?",
            hint=f"{named}. `penstock show {job}` lists them.",
        )
    return found[0]


async def records(slurm_conf: str, job: str) -> tuple[JobRecord, ...]:
    """The job, or the tasks of an array, from the accounting with what slurmctld still remembers; those of an
    array that wait are one. NotThere when Slurm knows none.
    """
    separator = fields.made_up()
    argv = ("sacct", "--noheader", "--parsable", f"--delimiter={separator}", "--allocations", f"--jobs={job}")
    asked = (*argv, f"--format={','.join(_RECORD)}")
    text = await commands.run(asked, slurm_conf=slurm_conf)
    accounted = {one.job_id: one for one in map(_recorded, fields.rows(text, separator, len(_RECORD)))}
    live = await _remembered(slurm_conf, job)
    merged = accounted | {number: _updated(accounted.get(number), block) for number, block in live.items()}
    found = _meant(job, merged.values())
    if not found:
        raise errors.NotThere(f"Slurm knows no job {job}", hint="`squeue` and `sacct` list those it knows.")
    return tuple(sorted(found, key=lambda one: (numbers.natural(one.task) is None, _number(one.task))))


def _meant(job: str, found: Iterable[JobRecord]) -> list[JobRecord]:
    """What was asked for: scontrol prints the whole array for the number of its last task."""
    known = list(found)
    exact = [one for one in known if one.shown_id == job]
    if exact:
        return exact
    if "_" in job:
        return [one for one in known if "[" in one.task]
    tasks = [one for one in known if one.shown_id.startswith(f"{job}_")]
    return tasks or [one for one in known if str(one.job_id) == job]


def _recorded(words: list[str]) -> JobRecord:
    first, shown, user, name, partition, state, code, elapsed, nodes, *times, comment = words
    job_id = numbers.natural(first)
    if job_id is None:
        raise errors.SlurmError(f"sacct printed a job that we do not understand: {words}")
    exit_code, signal = _exit(code)
    return JobRecord(
        job_id=job_id,
        shown_id=shown,
        user=user,
        name=name,
        partition=partition,
        state=state.partition(" ")[0],  # CANCELLED by 1001
        exit_code=exit_code,
        signal=signal,
        elapsed=_duration(elapsed),
        submitted=_moment(times[0]),
        started=_moment(times[1]),
        ended=_moment(times[2]),
        nodes=_nodes(nodes),
        comment=comment,
    )


async def _remembered(slurm_conf: str, job: str) -> dict[int, str]:
    """What scontrol prints, by job; nothing of a job that slurmctld has forgotten (MinJobAge)."""
    argv = ("scontrol", "show", "job", job)
    try:
        text = await commands.run(argv, slurm_conf=slurm_conf)
    except errors.SlurmUnavailable:
        raise
    except errors.SlurmError:
        return {}
    first, *others = text.split("\n\nJobId=")  # a comment may have blank lines, too
    blocks = (first, *(f"JobId={block}" for block in others))
    numbered = ((numbers.natural(_fields(block)[1].get("JobId", "")), block) for block in blocks)
    return {number: block for number, block in numbered if number is not None}


def _updated(known: JobRecord | None, block: str) -> JobRecord:
    """slurmctld's word in place of the accounting's, which hears of things a moment later."""
    whole, words = _fields(block)
    found = known or JobRecord(job_id=_number(words.get("JobId", "")), shown_id="")
    state = words.get("JobState", found.state)
    exit_code, signal = _exit(words.get("ExitCode", ""))
    ended = state in states.OVER
    return msgspec.structs.replace(
        found,
        shown_id=_shown_id(words),
        user=found.user or words.get("UserId", "").partition("(")[0],
        name=words.get("JobName") or found.name,
        partition=words.get("Partition", found.partition),
        state=state,
        exit_code=found.exit_code if exit_code is None else exit_code,
        signal=found.signal if signal is None else signal,
        elapsed=_duration(words.get("RunTime", "")),
        submitted=_moment(words.get("SubmitTime", "")) or found.submitted,
        started=None if state == states.JobState.PENDING else _moment(words.get("StartTime", "")),
        ended=_moment(words.get("EndTime", "")) if ended else None,  # before: when its time is over
        nodes=_nodes(words.get("NodeList", "")),
        reason=_word(words.get("Reason", "")) if state == states.JobState.PENDING else "",
        comment=whole.get("Comment", found.comment),
        restarts=_number(words.get("Restarts", "")),
        stdout=whole.get("StdOut", ""),
        stderr=whole.get("StdErr") or whole.get("StdOut", ""),  # later releases name it only if it differs
    )


def _shown_id(words: dict[str, str]) -> str:
    array, task = words.get("ArrayJobId", ""), words.get("ArrayTaskId", "")
    if not array or not task:
        return words.get("JobId", "")
    return f"{array}_{task}" if numbers.natural(task) is not None else f"{array}_[{task}]"


# -- words -----------------------------------------------------------------------------------------


def _number(text: str) -> int:
    return numbers.natural(text) or 0


def _word(text: str) -> str:
    """A reason in one word; `None` is Slurm's for none."""
    return "" if text in ("None", "(null)", "N/A") else text


def _moment(text: str) -> datetime.datetime | None:
    """From seconds since 1970; None for what Slurm writes when there is no such time."""
    seconds = numbers.natural(text)
    if not seconds or seconds > _LAST_SECOND:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def _duration(text: str) -> int | None:
    """Seconds of 1-02:03:04 or 2:03."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _exit(text: str) -> tuple[int | None, int | None]:
    """Exit code and signal of 7:0."""
    code, _, signal = text.partition(":")
    return numbers.natural(code), numbers.natural(signal)


def _nodes(text: str) -> tuple[str, ...]:
    if text in ("", "(null)", "None assigned", "N/A"):
        return ()
    try:
        return hostlists.expand(text)
    except errors.SlurmError:
        return (text,)


def _fields(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Values that fill a line (Comment, StdOut), and one-word values; the first of each name counts.

    The first line ends with the job's name, which may look like anything and is nothing else.
    """
    head, _, rest = text.partition("\n")
    known, _, name = head.partition(" JobName=")
    whole: dict[str, str] = {}
    words = dict(word.split("=", 1) for word in known.split() if "=" in word) | {"JobName": name.strip()}
    for line in rest.split("\n"):
        key, _, value = line.strip().partition("=")
        whole.setdefault(key, value)
        for word in line.split():
            name, _, short = word.partition("=")
            words.setdefault(name, short)
    return whole, words
