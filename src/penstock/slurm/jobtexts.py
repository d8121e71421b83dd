"""Parses jobs as squeue and scontrol print them: the same data under slightly different names.

squeue is called with a random separator behind every field (fields.py). scontrol prints users' text
unchanged, and job_submit.lua keeps control characters only out of what it prints first. So of its output
only this is trusted: what stands before the job's name, lines with Slurm's own beginning, and the first of
equal fields. Only a line feed ends a line: Python splits at more characters (U+2028).

`scontrol show job -d` is the only source (on every release from 22.05) of a job's share of each node. Only
the first block of node lines is used, and by penstockd only if its nodes are those that squeue names.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping

from penstock import errors
from penstock.model import jobs, numbers, resources, states
from penstock.slurm import hostlists, marks

LIVE_COLUMNS = ("JobID", "UserID", "RestartCnt", "State", "Partition")
COLUMNS = (  # of squeue
    *LIVE_COLUMNS,
    *("JobArrayID", "ArrayJobID", "ArrayTaskID", "Name", "GroupID", "Account", "QOS", "PriorityLong"),
    *("Reason", "NodeList", "ReqNodes", "Reservation", "Feature", "SubmitTime", "EligibleTime"),
    *("StartTime", "TimeUsed", "exit_code", "Comment", "Requeue", "admin_comment"),
)
USER_COLUMN = "UserName"
EXCLUDED = "ExcNodeList"  # not a column of squeue's, which only has %x

_COLUMN_OF = {
    "JobId": "JobID",
    "ArrayJobId": "ArrayJobID",
    "ArrayTaskId": "ArrayTaskID",
    "Restarts": "RestartCnt",
    "JobState": "State",
    "Priority": "PriorityLong",
    "ReqNodeList": "ReqNodes",
    "Features": "Feature",
    "RunTime": "TimeUsed",
    "ExitCode": "exit_code",
    "AdminComment": "admin_comment",
}
"""squeue's names of scontrol's fields, where they differ."""
_LINES_OF_WORDS = frozenset(
    {"Priority", "JobState", "Requeue", "RunTime", "SubmitTime", "StartTime", "Partition", "ReqNodeList"}
    | {"NodeList", "Features", "Reservation"}
)
_LINES_OF_TEXT = frozenset({"WorkDir", "AdminComment", "Comment", "StdErr", "StdIn", "StdOut"})
_OWNER = re.compile(r" {3}UserId=(.*?)\((\d{1,20})\)(?: GroupId=.*?\((\d{1,20})\))?")
_BLOCK = re.compile(r"(?:\A|(?<=\n\n))JobId=(\d{1,20}) ")
_NODE_LINE = re.compile(
    r" {5}Nodes=(?P<nodes>\S+) CPU_IDs=(?P<cpus>\S*) Mem=(?P<mem>\d{1,15}) GRES=(?P<gres>\S*)\s*"
)
_IDS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_GPU = re.compile(r"(?<![^,])gpu(?::(?P<type>[^:,()]+))?:(?P<count>\d{1,9})(?:\(|,|$)")
_DURATION = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,4}):)?(\d{1,4}):(\d{1,2})")
_UNSET = ("", "(null)", "N/A", "None assigned")
_LAST_SECOND = 253402300799  # of the year 9999


# -- a job from either command -------------------------------------------------------------------------------
def live_job(said: Mapping[str, str]) -> jobs.LiveJob:
    """From LIVE_COLUMNS. SlurmError if it is not a job."""
    return jobs.LiveJob(identity=_identity(said), state=said["State"], partition=said["Partition"])


def job(said: Mapping[str, str]) -> jobs.Job:
    """From COLUMNS. SlurmError if it is not a job."""
    text = collections.defaultdict(str, said)
    word = collections.defaultdict(str, {name: _set(value) for name, value in said.items()})
    mark = marks.read(text["admin_comment"])
    array, task = numbers.natural(word["ArrayJobID"]), numbers.natural(word["ArrayTaskID"])
    exit_code, signal = _end(said)
    return jobs.Job(
        identity=_identity(said),
        state=text["State"],
        partition=word["Partition"],
        shown_id=text["JobArrayID"],
        array=None if array is None or task is None else (array, task),
        user=text[USER_COLUMN],
        name=text["Name"],
        gid=numbers.natural(word["GroupID"]),
        account=word["Account"],
        qos=word["QOS"],
        priority=numbers.natural(word["PriorityLong"]) or 0,
        reason="" if word["Reason"] == "None" else word["Reason"],
        nodes=nodes(word["NodeList"]),
        required=nodes(word["ReqNodes"]),
        is_fixed=bool(word["ReqNodes"] or word["Reservation"]),
        features=bool(word["Feature"]),
        excluded=nodes(word[EXCLUDED]),
        submitted=seconds(word["SubmitTime"]),
        begins=seconds(word["EligibleTime"]),
        started=0 if text["State"] == states.JobState.PENDING else seconds(word["StartTime"]),
        ended=seconds(word["EndTime"]) if text["State"] in states.OVER else 0,  # before: its time limit
        elapsed=duration(word["TimeUsed"]),
        exit_code=exit_code,
        signal=signal,
        comment="" if text["Comment"] == "(null)" else text["Comment"].strip(),  # scontrol adds a blank
        may_go_back=text["Requeue"] != "0",
        admin_comment=text["admin_comment"],
        prepared=mark is not None,
        submission=mark.submission if mark else "",
        requeue=mark.requeue if mark else None,
        avoids=mark.avoids if mark else (),
        until=mark.until if mark else 0,
    )


def _identity(said: Mapping[str, str]) -> jobs.JobIdentity:
    found = [numbers.natural(said.get(name, "")) for name in ("JobID", "RestartCnt", "UserID")]
    job_id, restart, uid = found
    if job_id is None or restart is None or uid is None or not said.get("State"):
        raise _strange(said)
    return jobs.JobIdentity(job_id=job_id, restart=restart, uid=uid)


def _end(said: Mapping[str, str]) -> tuple[int, int]:
    """Exit code and signal, from a wait status (1792) or from 7:0."""
    before, colon, after = said.get("exit_code", "").partition(":")
    code, signal = numbers.natural(before), numbers.natural(after)
    if code is None or (colon and signal is None):
        raise _strange(said)
    return (code, signal or 0) if colon else (code >> 8, code & 0x7F)


def _strange(said: Mapping[str, str]) -> errors.SlurmError:
    known = [said.get(name, "") for name in LIVE_COLUMNS]
    return errors.SlurmError(f"Slurm printed a job that we do not understand: {known}")


def _set(text: str) -> str:
    return "" if text in _UNSET else text


def nodes(text: str) -> tuple[str, ...]:
    """The names in the list; an invalid list is returned as one name that no node has."""
    try:
        return hostlists.expand(_set(text))
    except errors.SlurmError:
        return (text,)


def seconds(text: str) -> int:
    """A time since 1970; 0 for Slurm's placeholders."""
    found = numbers.natural(text) or 0
    return found if found <= _LAST_SECOND else 0


def duration(text: str) -> int | None:
    """Seconds of 1-02:03:04 or 2:03."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


# -- scontrol show job ---------------------------------------------------------------------------------------
def blocks(text: str) -> Iterator[tuple[int, str]]:
    """scontrol's output by job: for an array's id it prints all tasks. A comment may contain blank lines,
    and even text that looks like a job.
    """
    starts = list(_BLOCK.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)]
    for match, end in zip(starts, ends, strict=bool(starts)):
        yield int(match[1]), text[match.start() : end]


def shown(text: str, job_id: int) -> jobs.Job:
    """The job with that id. SlurmError if it is missing or unreadable."""
    block = next((block for number, block in blocks(text) if number == job_id), None)
    if block is None:
        raise errors.SlurmError(f"scontrol shows no job {job_id}")
    return shown_in(block)


def all_shown(text: str) -> Iterator[jobs.Job]:
    """Every job; text that only looks like one is skipped."""
    for _, block in blocks(text):
        with contextlib.suppress(errors.SlurmError):
            yield shown_in(block)


def shown_in(block: str) -> jobs.Job:
    """The job of a block. SlurmError if it is unreadable."""
    said, texts = _fields(block)
    stdout = texts["StdOut"]
    return dataclasses.replace(
        job(said),
        shares=tuple(share for match in _first_node_lines(block) for share in _expand(match)),
        workdir=texts["WorkDir"],
        stdin=texts["StdIn"],
        stdout=stdout,
        stderr=texts["StdErr"] or stdout,  # later releases name it only if it differs
    )


def _fields(block: str) -> tuple[dict[str, str], dict[str, str]]:
    """Values by squeue's names, and texts that fill a line."""
    head, *lines = block.split("\n")
    known, _, name = head.partition(" JobName=")
    words = dict(word.split("=", 1) for word in known.split() if "=" in word)
    texts: dict[str, str] = collections.defaultdict(str)
    owner: dict[str, str] = {}
    for line in lines:
        key, _, value = line.removeprefix("   ").partition("=")
        if line.startswith("   UserId=") and not owner and (match := _OWNER.match(line)):
            owner = {USER_COLUMN: match[1], "UserID": match[2], "GroupID": match[3] or ""}
        elif key in _LINES_OF_TEXT:
            texts.setdefault(key, value)
        elif key in _LINES_OF_WORDS:
            for word in line.split():
                words.setdefault(*word.partition("=")[::2])
    said = {_COLUMN_OF.get(key, key): value for key, value in (words | texts).items()}
    return said | owner | {"Name": name.strip(), "JobArrayID": _shown_id(said)}, texts


def _shown_id(said: Mapping[str, str]) -> str:
    array, task = said.get("ArrayJobID", ""), said.get("ArrayTaskID", "")
    if not array or not task:
        return said.get("JobID", "")
    return f"{array}_{task}" if numbers.natural(task) is not None else f"{array}_[{task}]"


def _first_node_lines(block: str) -> Iterator[re.Match[str]]:
    inside = False
    for line in block.split("\n"):
        match = _NODE_LINE.fullmatch(line)
        if match:
            inside = True
            yield match
        elif inside:
            return


def _expand(match: re.Match[str]) -> Iterator[jobs.NodeShare]:
    gpus = list(_GPU.finditer(match["gres"]))
    amount = resources.Amount(
        millicpus=1000 * count_ids(match["cpus"]),
        memory=int(match["mem"]) * 2**20,
        gpus=sum(int(gpu["count"]) for gpu in gpus),
    )
    counts: collections.Counter[str] = collections.Counter()
    for gpu in gpus:
        counts[gpu["type"] or ""] += int(gpu["count"])
    del counts[""]
    for node in hostlists.expand(match["nodes"]):
        yield jobs.NodeShare(node=node, amount=amount, gpus_by_type=resources.devices(counts.items()))


def count_ids(ranges: str) -> int:
    """The count of numbers in "0-2,5". SlurmError if it is invalid."""
    total = 0
    for piece in filter(None, ranges.split(",")):
        match = _IDS.fullmatch(piece)
        if match is None:
            raise errors.SlurmError(f"scontrol printed CPU_IDs that we do not understand: {ranges[:80]!r}")
        total += max(int(match[2] or match[1]) - int(match[1]) + 1, 0)
    return total
