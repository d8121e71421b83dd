"""Interprets sbatch's output, for callers that must submit a script exactly once: a job, no, later, or
unknown.

sbatch's errors quote the script, so a phrase counts only where Slurm alone can have put it: at the
beginning of the reason after "Batch job submission failed:", or as a whole line. Only a line feed ends a
line; other line separators may come from the script.
"""

from __future__ import annotations

import errno
import os
import re
from typing import Literal

import msgspec

from penstock.slurm import commands

Kind = Literal["accepted", "rejected", "later", "unknown"]
_JOB_ID = re.compile(r"^(\d+)(?:;\S*)?$", re.MULTILINE)
_NOISE = re.compile(r"^sbatch: (?:error: )?")
_FAILED = re.compile(r"Batch job submission failed: (.*)", re.DOTALL)
_LIMIT = re.compile(r"(?:Assoc|QOS)\w*Submit\w*Limit")
_NEVER_SENT = "Unable to contact slurm controller (connect failure)"
_NO_ANSWER = (*commands.NO_ANSWER, "Controller is in standby mode")
_BUSY = (
    "Resource temporarily unavailable",
    "Slurm temporarily unable to accept job",
    "Slurm job queue full",
    "Job creation temporarily disabled",
)
_PASSING = (errno.ENOENT, errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN)
_NOT_MOUNTED = tuple(
    f": {os.strerror(number)}" for number in _PASSING
)  # messages for a home that is not mounted
NO_WORKDIR = "penstock: cannot enter the working directory"
LONGEST = 2000


class Answer(msgspec.Struct, frozen=True):
    """The result of a submission; `words` are for the user."""

    kind: Kind
    job_id: str = ""
    words: str = ""
    away: bool = False  # slurmctld could not be reached: not the user's fault
    passing: bool = False  # refused for a reason that may pass; sbatch was not started


def understand(out: str, err: str, *, code: int | None) -> Answer:
    """Interpret both streams of an sbatch that has ended; `code` is None if its exit status is unknown."""
    lines = [_NOISE.sub("", line.strip()) for line in err.split("\n") if line.strip()]
    words = "\n".join(lines)[:LONGEST]
    found = _JOB_ID.search(out)
    if found:  # whatever the exit code: with --wait it is the job's
        return Answer("accepted", job_id=found[1], words=words)
    if words.startswith(NO_WORKDIR):
        return Answer("rejected", words=words, passing=lines[0].endswith(_NOT_MOUNTED))
    reason = _reason(lines)
    if reason == _NEVER_SENT:
        return Answer("later", words=words, away=True)
    if reason.startswith(_NO_ANSWER):
        return Answer("unknown", words=words)
    if any(_LIMIT.fullmatch(line) for line in lines):
        return Answer("later", words=words)
    if reason.startswith(_BUSY):  # if it was killed during a retry, it may have succeeded
        killed = "retrying" in reason and (code is None or code <= 0)
        return Answer("unknown" if killed else "later", words=words)
    if not words or (code is not None and code <= 0):
        return Answer("unknown", words=words or "sbatch ended with no output")
    return Answer("rejected", words=words)


def _reason(lines: list[str]) -> str:
    """Why sbatch says that it failed, or else its last line."""
    failures = [found[1] for found in map(_FAILED.fullmatch, lines) if found]
    return (failures or lines or [""])[-1]
