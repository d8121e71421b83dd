"""What Slurm tells people about jobs, for commands that show both worlds side by side."""

from __future__ import annotations

import msgspec

from penstock import errors
from penstock.model import numbers
from penstock.slurm import commands, fields

_QUEUE = (
    "JobID",
    "JobArrayID",
    "UserName",
    "Name",
    "Partition",
    "State",
    "TimeUsed",
    "RestartCnt",
    "ReasonList",
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
    "Comment",
)


class QueuedJob(msgspec.Struct, frozen=True):
    """A job as squeue shows it."""

    job_id: int
    shown_id: str
    user: str
    name: str
    partition: str
    state: str
    time: str
    restarts: int
    where: str


class JobRecord(msgspec.Struct, frozen=True):
    """A job as scontrol, or after its end sacct, shows it."""

    job_id: int
    shown_id: str
    user: str
    name: str
    partition: str
    state: str
    exit_code: str
    elapsed: str
    nodes: str
    comment: str = ""
    restarts: int = 0
    stdout: str = ""
    stderr: str = ""


async def queue(slurm_conf: str, *, user: str = "") -> tuple[QueuedJob, ...]:
    """Jobs that wait or run."""
    separator = fields.made_up()
    argv = ["squeue", "--noheader", "--array", fields.wanted(_QUEUE, separator)]
    text = await commands.run([*argv, f"--user={user}"] if user else argv, slurm_conf=slurm_conf)
    return tuple(map(_queued, fields.rows(text, separator, len(_QUEUE))))


def _queued(words: list[str]) -> QueuedJob:
    first, shown_id, user, name, partition, state, time, last, where = words
    job_id, restarts = numbers.natural(first), numbers.natural(last)
    if job_id is None or restarts is None:
        raise errors.SlurmError(f"squeue printed a job that we do not understand: {words}")
    return QueuedJob(job_id, shown_id, user, name, partition, state, time, restarts, where)


async def record(slurm_conf: str, job: str) -> JobRecord:
    """One job (17 or 17_3), from the accounting, with what slurmctld still remembers of it."""
    separator = fields.made_up()
    argv = ("sacct", "--noheader", "--parsable", f"--delimiter={separator}", "--allocations", f"--jobs={job}")
    text = await commands.run((*argv, f"--format={','.join(_RECORD)}"), slurm_conf=slurm_conf)
    found = fields.rows(text, separator, len(_RECORD))
    if not found:
        return await _not_accounted_yet(slurm_conf, job)
    return await _with_live_details(slurm_conf, _recorded(found[0]))


def _recorded(words: list[str]) -> JobRecord:
    first, shown_id, user, name, partition, state, code, elapsed, nodes, comment = words
    job_id = numbers.natural(first)
    if job_id is None:
        raise errors.SlurmError(f"sacct printed a job that we do not understand: {words}")
    return JobRecord(job_id, shown_id, user, name, partition, state, code, elapsed, nodes, comment=comment)


async def _not_accounted_yet(slurm_conf: str, job: str) -> JobRecord:
    """The accounting hears of a job a moment after its submission; slurmctld knows it at once."""
    try:
        text = await commands.run(("scontrol", "show", "job", job), slurm_conf=slurm_conf)
    except errors.SlurmUnavailable:
        raise
    except errors.SlurmError:
        raise errors.UsageError(
            f"Slurm knows no job {job}", hint="`squeue` and `sacct` list those it knows."
        ) from None
    _, words = _fields(_block_of(numbers.natural(job), text))
    job_id, user = numbers.natural(words.get("JobId", "")), words.get("UserId", "").partition("(")[0]
    if job_id is None:
        raise errors.SlurmError(f"scontrol printed something that we do not understand of job {job}")
    array, task = (numbers.natural(words.get(name, "")) for name in ("ArrayJobId", "ArrayTaskId"))
    shown_id = job if array is None or task is None else f"{array}_{task}"
    bare = JobRecord(job_id, shown_id, user, "", "", "", "", "", "")
    return await _with_live_details(slurm_conf, bare)


async def _with_live_details(slurm_conf: str, found: JobRecord) -> JobRecord:
    try:
        text = await commands.run(("scontrol", "show", "job", str(found.job_id)), slurm_conf=slurm_conf)
    except errors.SlurmUnavailable:
        raise
    except errors.SlurmError:
        return found  # forgotten by slurmctld, MinJobAge after its end
    whole, words = _fields(_block_of(found.job_id, text))
    return msgspec.structs.replace(
        found,
        name=words.get("JobName") or found.name,
        partition=words.get("Partition", found.partition),
        state=words.get("JobState", found.state),
        elapsed=words.get("RunTime", found.elapsed),
        nodes=words.get("NodeList", found.nodes).replace("(null)", ""),
        exit_code=words.get("ExitCode", found.exit_code),
        restarts=_number(words.get("Restarts", "")),
        comment=whole.get("Comment", found.comment),
        stdout=whole.get("StdOut", ""),
        stderr=whole.get("StdErr") or whole.get("StdOut", ""),  # later releases name it only if it differs
    )


def _block_of(job_id: int | None, text: str) -> str:
    """What is said of this job: for the last task of an array, which has the array's number, scontrol prints
    the others as well.
    """
    blocks = text.split("\n\nJobId=")  # a comment may have blank lines, too
    blocks[1:] = [f"JobId={block}" for block in blocks[1:]]
    return next((block for block in blocks if block.startswith(f"JobId={job_id} ")), blocks[0])


def _number(text: str) -> int:
    return numbers.natural(text) or 0


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
