"""Finds and reads a job's results, with the caller's own permissions."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from penstock import errors
from penstock.results import checksums, summary

JOB = re.compile(r"\d+(?:[_+]\d+)?")


class Found(msgspec.Struct, frozen=True):
    folder: str
    summary: summary.Summary
    attempts: tuple[str, ...] = ()
    """Folders of earlier attempts."""
    checked: checksums.Verdict | None = None


def folders(results: Path, job: str) -> list[Path]:
    """The job's folder, or those of an array's tasks."""
    if not JOB.fullmatch(job):
        raise errors.UsageError(
            f"{job!r} is not a job id", hint="Use a number such as 17, or 20_3 for a task of an array."
        )
    if (results / job).is_dir():
        return [results / job]
    tasks = (path for path in results.glob(f"{job}_*") if path.name.partition("_")[2].isdigit())
    return sorted(tasks, key=lambda path: int(path.name.partition("_")[2]))


def is_being_collected(results: Path, job_id: int) -> bool:
    return any(results.glob(f".{job_id}-*.partial"))


def read(folder: Path, *, verify: bool) -> Found:
    """Raises PenstockError if the results cannot be read."""
    try:
        text = (folder / summary.JSON_NAME).read_bytes()
        found = msgspec.json.decode(text, type=summary.Summary)
        earlier = sorted(path.name for path in folder.glob("attempt-*"))
        checked = checksums.verify(folder) if verify else None
    except PermissionError as error:
        raise errors.PenstockError(
            f"no permission to read {folder}", hint=f"It belongs to {folder.owner()}."
        ) from error
    except FileNotFoundError as error:
        raise errors.PenstockError(
            f"{folder} is incomplete: it has no {Path(error.filename).name}",
            hint="It is still being collected, or files were removed.",
        ) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.PenstockError(f"{folder}/{summary.JSON_NAME} is not valid: {error}") from error
    return Found(folder=str(folder), summary=found, attempts=tuple(earlier), checked=checked)
