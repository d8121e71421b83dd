"""Reads all that slurmctld remembers of jobs in two calls, however many there are: for checks of both worlds.

squeue is asked with a separator made up for this one call, so that no text of a user's can look like a field.
scontrol alone tells the shares of nodes, and prints names of jobs: a job that seems to be printed twice
(a name with line breaks can do that in partitions that are not bridged) is asked for on its own.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator

from penstock import errors
from penstock.model import audits, jobs
from penstock.slurm import commands, control, fields, parsing

_FIELDS = ("JobID", "UserID", "RestartCnt", "State", "Partition", "exit_code", "Comment")
_CLUSTER = re.compile(r"^ClusterName\s*= (\S+)$", re.MULTILINE)
_BLOCK = re.compile(r"^JobId=(\d+) ", re.MULTILINE)


async def cluster_name(slurm_conf: str) -> str:
    """ClusterName, as slurmctld has it."""
    text = await commands.run(("scontrol", "show", "config"), slurm_conf=slurm_conf)
    match = _CLUSTER.search(text)
    if match is None:
        raise errors.SlurmError("scontrol shows no ClusterName")
    return match[1]


async def all_jobs(slurm_conf: str) -> tuple[audits.SlurmJob, ...]:
    """Every job, ended ones included for MinJobAge, those that hold resources with their shares."""
    separator = fields.made_up()
    argv = ("squeue", "--noheader", "--all", "--states=all", "--array", fields.wanted(_FIELDS, separator))
    found = parse_queue(await commands.run(argv, slurm_conf=slurm_conf), separator)
    holding = {job.job_id for job in found if job.live.holds_resources}
    shares = await _shares(slurm_conf, holding) if holding else {}
    return tuple(dataclasses.replace(job, shares=shares.get(job.job_id, ())) for job in found)


async def recorded_comments(slurm_conf: str, job_ids: Collection[int]) -> dict[int, str]:
    """Comments in the accounting, of which there is more to tell than slurmctld would take."""
    separator = fields.made_up()
    argv = ["sacct", "--noheader", "--parsable", f"--delimiter={separator}", "--allocations", "--allusers"]
    argv += [f"--jobs={','.join(map(str, sorted(job_ids)))}", "--format=JobIDRaw,Comment"]
    text = await commands.run(argv, slurm_conf=slurm_conf)
    rows = fields.rows(text, separator, 2)
    return {int(job_id): comment for job_id, comment in rows if job_id.isdecimal()}


def parse_queue(text: str, separator: str) -> tuple[audits.SlurmJob, ...]:
    """Jobs from squeue's answer; SlurmError when it is not what was asked for."""
    return tuple(_job(row) for row in fields.rows(text, separator, len(_FIELDS)))


def _job(row: list[str]) -> audits.SlurmJob:
    job_id, uid, restart, state, partition, status, comment = row
    try:
        identity = jobs.JobIdentity(job_id=int(job_id), uid=int(uid), restart=int(restart))
        exit_code, signal = wait_status(status)
    except ValueError:
        raise errors.SlurmError(f"squeue printed a job that we do not understand: {row[:6]}") from None
    live = jobs.LiveJob(identity=identity, state=state, partition=partition)
    said = "" if comment == "(null)" else comment
    return audits.SlurmJob(live=live, exit_code=exit_code, signal=signal, comment=said)


def wait_status(text: str) -> tuple[int, int]:
    """Exit code and signal from a wait status ("1792") or from what sacct shows ("7:0")."""
    code, colon, signal = text.partition(":")
    if colon:
        return int(code), int(signal)
    return int(code) >> 8, int(code) & 0x7F


async def _shares(slurm_conf: str, wanted: set[int]) -> dict[int, tuple[jobs.NodeShare, ...]]:
    text = await commands.run(("scontrol", "--detail", "show", "job"), slurm_conf=slurm_conf)
    found: dict[int, tuple[jobs.NodeShare, ...]] = {}
    twice: set[int] = set()
    for job_id, block in blocks(text):
        if job_id in wanted:
            twice |= {job_id} & found.keys()
            found[job_id] = _shares_in(block)
    for job_id in twice:
        found[job_id] = await control.SlurmControl(slurm_conf).shares(job_id)
    return found


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """What scontrol printed, job by job."""
    starts = list(_BLOCK.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)]
    for match, end in zip(starts, ends, strict=bool(starts)):
        yield int(match[1]), text[match.start() : end]


def _shares_in(block: str) -> tuple[jobs.NodeShare, ...]:
    """None for a job that has lost its nodes between the two calls."""
    try:
        return parsing.shares(block)
    except errors.SlurmError:
        return ()
