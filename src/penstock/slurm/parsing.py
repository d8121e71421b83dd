"""Reads what Slurm's commands print.

`scontrol show job -d` is the only place (on every release from 22.05) that tells a job's share of each node.
It prints text of the user's too: the job's name on the first line, everything else after the lines we read.
job_submit.lua keeps control characters out of names, so a line feed in them cannot forge a field; nothing
else ends a line here, although Python breaks text at more (U+2028). Still only the first block of node lines
is believed.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator

from penstock import errors
from penstock.model import jobs, resources
from penstock.slurm import hostlists, marks

SQUEUE_FIELDS = (
    "JobID:|,UserID:|,RestartCnt:|,State:|,Partition:|"  # numbers and site's names only: no text of users'
)
ARRAY_FIELDS = "JobID:|,ArrayJobID:|,ArrayTaskID:|"

_NODE_LINE = re.compile(
    r" {5}Nodes=(?P<nodes>\S+) CPU_IDs=(?P<cpus>\S*) Mem=(?P<mem>\d{1,15}) GRES=(?P<gres>\S*)\s*"
)
_IDS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_GPU = re.compile(r"(?<![^,])gpu(?::(?P<type>[^:,()]+))?:(?P<count>\d{1,9})(?:\(|,|$)")
_PARTITION_LINE = re.compile(r"^ {3}Partition=(\S+) AllocNode:Sid=", re.MULTILINE)
_GROUP_LINE = re.compile(r"^ {3}UserId=.* GroupId=.*\((\d{1,10})\) MCS_label=", re.MULTILINE)
_FIXED_LINE = re.compile(r"^ {3}Requeue=0 Restarts=", re.MULTILINE)
_STATE_LINE = re.compile(r"^ {3}JobState=(\S+) ", re.MULTILINE)
_MARK_LINE = re.compile(r"^ {3}AdminComment=(.*)", re.MULTILINE)
_CLUSTER_LINE = re.compile(r"^ClusterName\s*= (\S+)", re.MULTILINE)
_REQUEUE_LINE = re.compile(r"^JobRequeue\s*= ([01])", re.MULTILINE)
_BOOT_LINE = re.compile(r"^BOOT_TIME\s*= (\d\S+)", re.MULTILINE)
_START_LINE = re.compile(r"^ {3}StartTime=(\d\S+) ", re.MULTILINE)
_SUBMIT_LINE = re.compile(r"^ {3}SubmitTime=(\d{1,15}) ", re.MULTILINE)  # with SLURM_TIME_FORMAT=%s
_ACCOUNT_LINE = re.compile(
    r"^ {3}Priority=\d+ Nice=-?\d+ Account=(?P<account>\S+) QOS=(?P<qos>\S+)", re.MULTILINE
)


def cluster_name(text: str) -> str:
    """ClusterName from `scontrol show config`."""
    found = _CLUSTER_LINE.search(text)
    if found is None:
        raise errors.SlurmError("scontrol show config names no ClusterName")
    return found[1]


def requeues_by_default(text: str) -> bool:
    """JobRequeue from `scontrol show config`."""
    found = _REQUEUE_LINE.search(text)
    return found is None or found[1] == "1"


def boot_time(text: str) -> str:
    """When slurmctld started, from `scontrol show config`; as text that can be compared."""
    return _moment(_BOOT_LINE, text, "scontrol show config names no BOOT_TIME")


def start_time(text: str) -> str:
    """When a job's attempt started, from `scontrol show job`, in the same form."""
    return _moment(_START_LINE, text, "scontrol shows no StartTime for the job")


def _moment(line: re.Pattern[str], text: str, otherwise: str) -> str:
    found = line.search(text)
    if found is None:
        raise errors.SlurmError(otherwise)
    return found[1]


def live_jobs(text: str) -> tuple[jobs.LiveJob, ...]:
    """Jobs from `squeue -h -O` with SQUEUE_FIELDS."""
    return tuple(_live_job(line) for line in text.splitlines() if line.strip())


def _live_job(line: str) -> jobs.LiveJob:
    fields = [field.strip() for field in line.split("|")]
    try:
        identity = jobs.JobIdentity(job_id=int(fields[0]), uid=int(fields[1]), restart=int(fields[2]))
        return jobs.LiveJob(identity=identity, state=fields[3], partition=fields[4])
    except (ValueError, IndexError):
        raise errors.SlurmError(f"squeue printed a line that we do not understand: {line[:120]!r}") from None


def name_of_task(text: str, job_id: int) -> str:
    """17 or, for a task of an array, 12_3, from `squeue -h -r -O` with ARRAY_FIELDS."""
    rows = ([field.strip() for field in line.split("|")] for line in text.splitlines())
    names = {f"{row[1]}_{row[2]}" if row[2].isdigit() else row[0] for row in rows if row[0] == str(job_id)}
    if len(names) != 1:
        raise errors.SlurmError(f"squeue knows {len(names)} jobs by the number {job_id}")
    return names.pop()


def details(text: str) -> jobs.JobDetails:
    """Partition, QOS and the share of every node, in the order of the allocation, from `scontrol show job
    -d`.
    """
    found = tuple(share for match in _first_block(text) for share in _expand(match))
    if not found:
        raise errors.SlurmError("scontrol shows no allocation for the job")
    partition, account = _PARTITION_LINE.search(text), _ACCOUNT_LINE.search(text)
    if partition is None:
        raise errors.SlurmError("scontrol shows no partition for the job")
    state = _STATE_LINE.search(text)
    mark = _mark(text)
    return jobs.JobDetails(
        shares=found,
        partition=partition[1],
        qos=account["qos"] if account else "",
        account=account["account"] if account and account["account"] != "(null)" else "",
        state=state[1] if state else "",
        gid=int(group[1]) if (group := _GROUP_LINE.search(text)) else None,
        prepared=mark is not None,
        requeue=mark.requeue if mark else None,
        avoids=mark.avoids if mark else (),
        may_go_back=_FIXED_LINE.search(text) is None,
        submitted=int(submitted[1]) if (submitted := _SUBMIT_LINE.search(text)) else 0,
        submission=mark.submission if mark else "",
    )


def admin_comment(text: str) -> str:
    """AdminComment from `scontrol show job`."""
    found = _MARK_LINE.search(text)
    return found[1].strip() if found else ""


def _mark(text: str) -> marks.Mark | None:
    return marks.read(admin_comment(text))


def _first_block(text: str) -> Iterator[re.Match[str]]:
    inside = False
    own = text.partition("\n\nJobId=")[0]  # an array's id shows all its tasks, its own first
    for line in own.split("\n"):
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
    """How many numbers "0-2,5" stands for; SlurmError when it stands for none."""
    total = 0
    for piece in filter(None, ranges.split(",")):
        match = _IDS.fullmatch(piece)
        if match is None:
            raise errors.SlurmError(f"scontrol printed CPU_IDs that we do not understand: {ranges[:80]!r}")
        total += max(int(match[2] or match[1]) - int(match[1]) + 1, 0)
    return total
