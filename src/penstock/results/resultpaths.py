"""Where a job's results are, for whoever asks; read with the asker's own rights."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from penstock import errors
from penstock.results import checksums, summary

JOB = re.compile(r"\d+(?:[_+]\d+)?")


class Found(msgspec.Struct, frozen=True):
    """One job's results."""

    folder: str
    summary: summary.Summary
    attempts: tuple[str, ...] = ()
    """Folders of earlier attempts."""
    checked: checksums.Verdict | None = None


def folders(results: Path, job: str) -> list[Path]:
    """The job's folder, or those of an array's tasks; none when there is none yet."""
    if not JOB.fullmatch(job):
        raise errors.UsageError(f"{job!r} is not a job id", hint="A number such as 17, or 20_3 in an array.")
    if (results / job).is_dir():
        return [results / job]
    tasks = (path for path in results.glob(f"{job}_*") if path.name.partition("_")[2].isdigit())
    return sorted(tasks, key=lambda path: int(path.name.partition("_")[2]))


def is_being_collected(results: Path, job_id: int) -> bool:
    return any(results.glob(f".{job_id}-*.partial"))


def read(folder: Path, *, verify: bool) -> Found:
    """What lies there; PenstockError in words when it cannot be read."""
    try:
        text = (folder / summary.JSON_NAME).read_bytes()
        found = msgspec.json.decode(text, type=summary.Summary)
        earlier = sorted(path.name for path in folder.glob("attempt-*"))
        checked = checksums.verify(folder) if verify else None
    except PermissionError as error:
        raise errors.PenstockError(
            f"{folder} is not yours to read", hint=f"It belongs to {folder.owner()}."
        ) from error
    except FileNotFoundError as error:
        raise errors.PenstockError(
            f"{folder} is not whole: it has no {Path(error.filename).name}",
            hint="It is being collected, or somebody has removed a part of it.",
        ) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.PenstockError(f"{folder}/{summary.JSON_NAME} has been changed: {error}") from error
    return Found(folder=str(folder), summary=found, attempts=tuple(earlier), checked=checked)
