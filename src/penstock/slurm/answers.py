"""What sbatch's words mean for whoever wants a script submitted once: a job, no, not now, or nobody knows.

sbatch repeats words of the script in its complaints, so a word is believed only where Slurm alone can have
put it: the reason after "Batch job submission failed:", from its beginning, or a line that is one word of
Slurm's and nothing else. Lines end with a line feed only; other characters at which text can be broken may be
the script's.
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
_NOT_MOUNTED = tuple(f": {os.strerror(number)}" for number in _PASSING)  # what a home that is away looks like
NO_WORKDIR = "penstock: cannot enter the working directory"
LONGEST = 2000


class Answer(msgspec.Struct, frozen=True):
    """What came of a submission; `words` are for the user."""

    kind: Kind
    job_id: str = ""
    words: str = ""
    away: bool = False
    """slurmctld could not be reached: that is nobody's own trouble."""
    passing: bool = False
    """A refusal for a reason that may be over soon, for which sbatch was not even started."""


def understand(out: str, err: str, *, code: int | None) -> Answer:
    """Read both streams of an sbatch that has ended; `code` is None when its exit status is not known."""
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
    if reason.startswith(_BUSY):  # one that was killed while it tried again may have succeeded
        killed = "retrying" in reason and (code is None or code <= 0)
        return Answer("unknown" if killed else "later", words=words)
    if not words or (code is not None and code <= 0):
        return Answer("unknown", words=words or "sbatch ended without a word")
    return Answer("rejected", words=words)


def _reason(lines: list[str]) -> str:
    """Why sbatch says that it failed, or else the last that it says."""
    failures = [found[1] for found in map(_FAILED.fullmatch, lines) if found]
    return (failures or lines or [""])[-1]
