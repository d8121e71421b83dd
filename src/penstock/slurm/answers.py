"""What sbatch's words mean for whoever wants a script submitted once: a job, no, not now, or nobody knows."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from penstock.slurm import commands

Kind = Literal["accepted", "rejected", "later", "unknown"]
_JOB_ID = re.compile(r"^(\d+)(?:;\S*)?$", re.MULTILINE)
_NOT_NOW = re.compile(r"\b(?:Assoc|QOS)\w*Submit\w*Limit\b|temporarily unable to accept job")
_NEVER_SENT = "connect failure"
_NOISE = re.compile(r"^sbatch: (?:error: )?")
NO_WORKDIR = "penstock: cannot enter the working directory"
LONGEST = 2000


class Answer(msgspec.Struct, frozen=True):
    """What came of a submission; `words` are for the user."""

    kind: Kind
    job_id: str = ""
    words: str = ""


def understand(out: str, err: str, *, code: int | None) -> Answer:
    """Read both streams of an sbatch that has ended; `code` is None when its exit status is not known."""
    found = _JOB_ID.search(out)
    words = "\n".join(_NOISE.sub("", line) for line in err.splitlines() if line.strip())[:LONGEST]
    if found and code in (0, None):
        return Answer("accepted", job_id=found[1], words=words)
    if _NOT_NOW.search(err):
        return Answer("later", words=words)
    if commands.is_away(err):
        return Answer("later" if _NEVER_SENT in err else "unknown", words=words)
    if not words or (code is not None and code <= 0):
        return Answer("unknown", words=words or "sbatch ended without a word")
    return Answer("rejected", words=words)
