"""Whose attempt lies in a results folder, and whether another one is of the same job.

Its own summary tells, read as the owner. A job's number is no proof: slurmctld may lose its state and count
anew, and refused admissions count as restarts, so the first attempt of a new job may well be number 2. Nor
is Slurm's time of submission, which every requeue sets anew. Hence the time that job_submit.lua notes.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from penstock.model import attempts
from penstock.results import checksums, filecopy, summary

_MOST_SUMMARY = 4 << 20


class Existing(msgspec.Struct, frozen=True):
    """What a results folder says of itself; its owner may have written anything there."""

    attempt_id: str = ""
    job_id: int = -1
    restarts: int = -1
    submission: str | None = None
    complete: bool = False


def continues(attempt: attempts.Attempt, there: Existing) -> bool:
    """Whether this is a later attempt of the job that lies there; in doubt it is not, and they stay apart."""
    if there.job_id != attempt.job_id or not 0 <= there.restarts < attempt.restart:
        return False
    return bool(attempt.submission) and attempt.submission == there.submission


def look(folder: Path) -> Existing:
    """Nothing of it when there is no summary, or what is there is none."""
    try:
        descriptor = filecopy.open_file(folder / summary.JSON_NAME)
        with os.fdopen(descriptor, "rb") as stream:
            found = msgspec.json.decode(stream.read(_MOST_SUMMARY), type=Existing)
    except (
        FileNotFoundError,
        NotADirectoryError,
        filecopy.NotAFile,
        msgspec.MsgspecError,
        UnicodeDecodeError,
    ):
        return Existing()
    return msgspec.structs.replace(found, complete=(folder / checksums.NAME).is_file())
