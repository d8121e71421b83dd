"""Finds jobs by the token in the path of their script, in the queue and in the accounting.

slurmctld forgets a job MinJobAge after its end, the accounting learns of it a few seconds after its start:
together they know every job at any time. Only jobs of the one user are searched, so nobody can make another
user's file look submitted.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterable

from penstock.slurm import accounting, reader

TOKEN = re.compile(r"/([0-9a-f]{32})/")
_SECONDS = 60.0
_MARGIN = datetime.timedelta(days=1)  # two hosts' clocks may differ


async def find(uid: int, tokens: Collection[str], *, since: float, slurm_conf: str) -> dict[str, str]:
    """Job ids by token. SlurmError if that cannot be known."""
    found = matches(await reader.SlurmReader(slurm_conf).scripts_of(uid, within=_SECONDS), tokens)
    if len(found) == len(tokens):
        return found
    start = datetime.datetime.fromtimestamp(since) - _MARGIN
    recorded = await accounting.submit_lines(slurm_conf, uid, since=start, within=_SECONDS)
    return matches(recorded, tokens) | found


def matches(commands: Iterable[tuple[str, str]], tokens: Collection[str]) -> dict[str, str]:
    """Job ids by token, from ids and commands; an array's tasks count as the array."""
    found: dict[str, str] = {}
    for job, command in commands:
        number = re.match(r"\d+", job)
        for token in TOKEN.findall(command):
            if number and token in tokens:
                found.setdefault(token, number[0])
    return found
