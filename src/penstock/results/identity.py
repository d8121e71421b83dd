"""Identifies the attempt in a results folder, and whether a later attempt belongs to the same job.

The folder's own summary tells, read as the owner. The job id proves nothing: slurmctld may lose its state and
count from the start, and refused admissions count as restarts, so a new job's first attempt may be number 2.
Slurm's submit time changes with every requeue. So jobs are compared by the time that job_submit.lua records.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from penstock.model import attempts
from penstock.results import checksums, filecopy, summary

_MOST_SUMMARY = 4 << 20


class Existing(msgspec.Struct, frozen=True):
    """From the folder's summary, which its owner can have changed to anything."""

    attempt_id: str = ""
    job_id: int = -1
    restarts: int = -1
    submission: str | None = None
    complete: bool = False


def continues(attempt: attempts.Attempt, there: Existing) -> bool:
    """Whether this is a later attempt of the job in the folder; False in doubt, so the folders stay apart."""
    if there.job_id != attempt.job_id or not 0 <= there.restarts < attempt.restart:
        return False
    return bool(attempt.submission) and attempt.submission == there.submission


def read(folder: Path) -> Existing:
    """Empty if there is no valid summary."""
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
