"""Finds jobs again by the token in the path of their script: in the queue, and in the accounting.

slurmctld forgets a job MinJobAge after its end, the accounting learns of it a few seconds after its
beginning: together they know every job at every moment. Only jobs of the one user are looked at, so nobody
can make another's file look submitted.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection

from penstock.slurm import commands

TOKEN = re.compile(r"/([0-9a-f]{32})/")
_SECONDS = 60.0
_MARGIN = datetime.timedelta(days=1)  # clocks of two hosts may differ


async def find(uid: int, tokens: Collection[str], *, since: float, slurm_conf: str) -> dict[str, str]:
    """Job ids of those of the tokens that have a job; SlurmError when that cannot be known."""
    queue = ("squeue", "--noheader", "--all", "--states=all", f"--user={uid}", "--format=%F|%o")
    found = matches(await commands.run(queue, slurm_conf=slurm_conf, within=_SECONDS), tokens)
    if len(found) == len(tokens):
        return found
    start = datetime.datetime.fromtimestamp(since) - _MARGIN
    record = (
        "sacct",
        "--noheader",
        "--parsable2",
        "--allocations",
        "--duplicates",
        f"--user={uid}",
        f"--starttime={start:%Y-%m-%dT%H:%M:%S}",
        "--endtime=now+1days",
        "--format=JobID,SubmitLine",
    )
    return matches(await commands.run(record, slurm_conf=slurm_conf, within=_SECONDS), tokens) | found


def matches(text: str, tokens: Collection[str]) -> dict[str, str]:
    """Job ids by token, from lines of id, bar, command; an array's tasks count as the array."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        job, _, command = line.partition("|")
        number = re.match(r"\d+", job.strip())
        for token in TOKEN.findall(command):
            if number and token in tokens:
                found.setdefault(token, number[0])
    return found
