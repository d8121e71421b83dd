"""Reads what Slurm's commands print.

`scontrol show job -d` is the only place (on every release from 22.05) that tells a job's share of each node,
and nothing else is taken from it: it prints text of the user's, too, as it is. job_submit.lua keeps control
characters out of what stands before the shares, so a line feed in it cannot forge one; nothing else ends a
line here, although Python breaks text at more (U+2028). Only the first block of node lines is believed, and
only if its nodes are those that squeue names. Everything else is asked of squeue, field by field (fields.py).
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator, Sequence

from penstock import errors
from penstock.model import comments, jobs, numbers, resources, states
from penstock.slurm import hostlists, marks

SQUEUE_FIELDS = (
    "JobID:|,UserID:|,RestartCnt:|,State:|,Partition:|"  # numbers and site's names only: no text of users'
)
ARRAY_FIELDS = "JobID:|,ArrayJobID:|,ArrayTaskID:|"
DETAIL_FIELDS = (
    *("Partition", "State", "QOS", "Account", "GroupID", "NodeList", "Requeue"),
    *("SubmitTime", "admin_comment"),
    *("ArrayJobID", "ArrayTaskID", "Comment"),
)

_NODE_LINE = re.compile(
    r" {5}Nodes=(?P<nodes>\S+) CPU_IDs=(?P<cpus>\S*) Mem=(?P<mem>\d{1,15}) GRES=(?P<gres>\S*)\s*"
)
_IDS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_GPU = re.compile(r"(?<![^,])gpu(?::(?P<type>[^:,()]+))?:(?P<count>\d{1,9})(?:\(|,|$)")
_REASON = re.compile(r"^ {3}JobState=\S+ Reason=(\S+) ", re.MULTILINE)
_EXIT_CODE = re.compile(r"^ {3}Requeue=.* ExitCode=(\d{1,9}):(\d{1,9})$", re.MULTILINE)
_STARTED = re.compile(r"^ {3}StartTime=(\d{1,15}) ", re.MULTILINE)
_CLUSTER_LINE = re.compile(r"^ClusterName\s*= (\S+)", re.MULTILINE)
_REQUEUE_LINE = re.compile(r"^JobRequeue\s*= ([01])", re.MULTILINE)
_BOOT_LINE = re.compile(r"^BOOT_TIME\s*= (\d\S+)", re.MULTILINE)
_UNSET = ("", "(null)", "N/A")


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
    found = _BOOT_LINE.search(text)
    if found is None:
        raise errors.SlurmError("scontrol show config names no BOOT_TIME")
    return found[1]


def live_jobs(text: str) -> tuple[jobs.LiveJob, ...]:
    """Jobs from `squeue -h -O` with SQUEUE_FIELDS."""
    return tuple(_live_job(line) for line in text.split("\n") if line.strip())


def _live_job(line: str) -> jobs.LiveJob:
    fields = [field.strip() for field in line.split("|")]
    try:
        identity = jobs.JobIdentity(job_id=int(fields[0]), uid=int(fields[1]), restart=int(fields[2]))
        return jobs.LiveJob(identity=identity, state=fields[3], partition=fields[4])
    except (ValueError, IndexError):
        raise errors.SlurmError(f"squeue printed a line that we do not understand: {line[:120]!r}") from None


def name_of_task(text: str, job_id: int) -> str:
    """17 or, for a task of an array, 12_3, from `squeue -h -r -O` with ARRAY_FIELDS."""
    rows = ([field.strip() for field in line.split("|")] for line in text.split("\n"))
    names = {shown_id(*row[:3]) for row in rows if row[0] == str(job_id)}
    if len(names) != 1:
        raise errors.SlurmError(f"squeue knows {len(names)} jobs by the number {job_id}")
    return names.pop()


def shown_id(job_id: str, array: str, task: str) -> str:
    """How people name it: 17 or 12_3."""
    return f"{array}_{task}" if task.isdigit() else job_id


def details(row: Sequence[str], shares_shown: tuple[jobs.NodeShare, ...]) -> jobs.JobDetails:
    """A job from squeue's DETAIL_FIELDS, with its share of every node in the order of the allocation.

    While a job is completing squeue names only the nodes that it still has.
    """
    partition, state, qos, account, group, nodes, requeue, submitted, admin_comment, array, task, said = row
    named, shown = set(hostlists.expand(nodes)), {share.node for share in shares_shown}
    if not named <= shown or (named != shown and state != states.JobState.COMPLETING):
        raise errors.SlurmError(f"scontrol shows shares of other nodes than the job has, which is on {nodes}")
    if partition in _UNSET:
        raise errors.SlurmError("squeue names no partition of the job")
    mark = marks.read(admin_comment)
    return jobs.JobDetails(
        shares=shares_shown,
        partition=partition,
        qos=_set(qos),
        account=_set(account),
        state=state,
        gid=numbers.natural(group),
        prepared=mark is not None,
        submitted=numbers.natural(submitted) or 0,
        submission=mark.submission if mark else "",
        requeue=mark.requeue if mark else None,
        avoids=mark.avoids if mark else (),
        may_go_back=requeue != "0",
        array=(int(array), int(task)) if array.isdigit() and task.isdigit() else None,
        own_comment=comments.own(said),
    )


def _set(text: str) -> str:
    return "" if text in _UNSET else text


def shares(text: str) -> tuple[jobs.NodeShare, ...]:
    """The share of every node, in the order of the allocation, from `scontrol show job -d`."""
    found = tuple(share for match in _first_block(text) for share in _expand(match))
    if not found:
        raise errors.SlurmError("scontrol shows no allocation for the job")
    return found


def failed_launch(text: str, job_id: int) -> jobs.FailedLaunch | None:
    """How slurmd failed to start the job, from `scontrol show job`; None when it did not."""
    blocks = f"\n\n{text}".split("\n\nJobId=")  # an array's id shows all its tasks
    own = next((block for block in blocks if block.startswith(f"{job_id} ")), "")
    reason = _REASON.search(own)  # the first is the job's own: users' texts come after it
    if reason is None or reason[1] != "JobLaunchFailure":
        return None
    code, started = _EXIT_CODE.search(own), _STARTED.search(own)
    if code is None or started is None:
        raise errors.SlurmError(f"scontrol does not tell how job {job_id} ended")
    stdout = _line(own, "StdOut")
    return jobs.FailedLaunch(
        exit_code=int(code[1]),
        signal=int(code[2]),
        started=float(started[1]),
        workdir=_line(own, "WorkDir"),
        stdin=_line(own, "StdIn"),
        stdout=stdout,
        stderr=_line(own, "StdErr") or stdout,
    )


def _line(text: str, name: str) -> str:
    found = re.search(rf"^ {{3}}{name}=(.*)$", text, re.MULTILINE)
    return found[1] if found else ""


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
