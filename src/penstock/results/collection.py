"""Turns the record of an ended attempt into a results folder, repeated until that succeeds.

The record is removed when the folder is complete and has its final name. Its lock is held by the collecting
process and the child that acts as the user, so it survives a killed collector.
"""

from __future__ import annotations

import asyncio
import dataclasses
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import NoneType

import msgspec

from penstock import errors
from penstock.model import attempts, jobs, numbers
from penstock.nas import asuser, atomic
from penstock.results import (
    contents,
    filecopy,
    identity,
    notify,
    previousattempts,
    resultpaths,
    resultsroot,
    settings,
    summary,
)
from penstock.slurm import accounting

log = logging.getLogger(__name__)

READ_SECONDS = 60.0
GIVEN_UP = "given-up"
TOLD = "told"


@dataclasses.dataclass(frozen=True)
class Job:
    settings: settings.Settings
    path: Path
    attempt: attempts.Attempt
    record: jobs.JobRecord | None
    user: asuser.User
    is_last: bool = False
    """The last try: a collection that fails for days must not delay the job's later attempts forever."""

    @property
    def final(self) -> Path:
        shown = summary.shown_id(self.attempt, self.record)
        name = shown if resultpaths.JOB.fullmatch(shown) else str(self.attempt.job_id)
        return self.settings.folder / name

    @property
    def partial(self) -> Path:
        return self.settings.folder / f".{summary.attempt_id(self.attempt)}.partial"

    @property
    def old(self) -> Path:
        return self.settings.folder / f".{summary.attempt_id(self.attempt)}.old"


def collect(chosen: settings.Settings, path: Path, record: jobs.JobRecord | None) -> bool:
    """Whether the results are complete and the record is removed."""
    with _locked(path) as content:
        if content is None:
            return not path.exists()  # if it exists, a child of a killed collector still works on it
        resultsroot.prepare(chosen.folder, chosen.state)
        try:
            attempt = msgspec.json.decode(content, type=attempts.Attempt)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return give_up_invalid(chosen, path, error)
        is_last = time.time() >= attempt.closed + chosen.give_up_seconds
        try:
            known = _remember(chosen, attempt, record)
            job = Job(chosen, path, attempt, known, asuser.User.of(attempt.uid), is_last)
            found = _build(job)
        except (errors.PenstockError, OSError) as error:
            return _failed(chosen, path, attempt, str(error), is_last=is_last)
        if not found.complete:
            return _failed(chosen, path, attempt, found.problem, is_last=is_last)
        _finish(job, found)
        return True


def _failed(
    chosen: settings.Settings, path: Path, attempt: attempts.Attempt, problem: str, *, is_last: bool
) -> bool:
    """Retry later, or set the record aside after the last try; returns whether nothing is left to do."""
    if not is_last:
        log.warning("job %d: results are incomplete: %s", attempt.job_id, problem)
        return False
    kept = _set_aside(chosen, path)
    _record_path(chosen, attempt).unlink(missing_ok=True)
    log.error(
        "job %d: gave up, results stay incomplete, the record is in %s: %s", attempt.job_id, kept, problem
    )
    return True


def give_up_invalid(chosen: settings.Settings, path: Path, error: Exception) -> bool:
    """Set an invalid record aside, once a later release has had time to read it; False until then."""
    with suppress(FileNotFoundError):
        if time.time() < path.stat().st_mtime + chosen.give_up_seconds:
            log.error("%s is not a valid record: %s", path, error)
            return False
        log.error("gave up on %s, which is in %s now: %s", path, _set_aside(chosen, path), error)
    return True


def _set_aside(chosen: settings.Settings, path: Path) -> Path:
    kept = chosen.state / GIVEN_UP
    kept.mkdir(mode=0o700, exist_ok=True)
    path.rename(kept / path.name)
    return kept


def _record_path(chosen: settings.Settings, attempt: attempts.Attempt) -> Path:
    return chosen.state / TOLD / f"{summary.attempt_id(attempt)}.json"


def _remember(
    chosen: settings.Settings, attempt: attempts.Attempt, record: jobs.JobRecord | None
) -> jobs.JobRecord | None:
    """Slurm's record, now or from an earlier try: Slurm forgets it, and the folder is named after it."""
    path = _record_path(chosen, attempt)
    if record is None:
        try:
            return msgspec.json.decode(path.read_bytes(), type=jobs.JobRecord)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
    path.parent.mkdir(mode=0o700, exist_ok=True)
    atomic.write(path, msgspec.json.encode(record), mode=0o600, durable=False)
    return record


@contextmanager
def _locked(path: Path) -> Iterator[bytes | None]:
    """The record's content, locked; None if another process has locked or removed it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        yield None
        return
    try:
        yield _lock_and_read(path, descriptor)
    finally:
        os.close(descriptor)


def _lock_and_read(path: Path, descriptor: int) -> bytes | None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        same = path.stat().st_ino == os.fstat(descriptor).st_ino
    except (BlockingIOError, FileNotFoundError):
        return None
    return os.read(descriptor, os.fstat(descriptor).st_size) if same else None


def _build(job: Job) -> contents.Gathered:
    _recover_partial(job)
    previous = _previous(job)
    resultsroot.own_folder(job.partial, job.user)
    plan = contents.Plan(
        attempt=job.attempt,
        record=job.record,
        user=job.user.name,
        folder=str(job.partial),
        results=job.settings.results,
        previous=str(job.final) if previous is not None else "",
        previous_number=previous or 0,
        overtaken=_overtaken(job),
        is_last=job.is_last,
        limits=job.settings.limits,
    )
    found = asuser.run_as(
        job.user, lambda: contents.gather(plan), type=contents.Gathered, timeout=job.settings.job_seconds
    )
    if found.complete:
        _put_in_place(job)
    elif found.has_summary and not filecopy.exists(job.final):
        job.partial.rename(job.final)  # visible to its owner; renamed back before the next try
    return found


def _recover_partial(job: Job) -> None:
    """Rename back a folder shown under the task's job id before Slurm reported which array it belongs to."""
    shown = job.settings.folder / str(job.attempt.job_id)
    if shown == job.final or filecopy.exists(job.partial) or not filecopy.exists(shown):
        return
    with suppress(PermissionError):  # another job's folder of that number, closed by its owner
        if _identify(job, shown).attempt_id == summary.attempt_id(job.attempt):
            shown.rename(job.partial)


def _identify(job: Job, folder: Path) -> identity.Existing:
    """Read as the user; empty if the folder is not the user's."""
    if not resultsroot.belongs_to(folder, job.user):
        return identity.Existing()
    return asuser.run_as(
        job.user, lambda: identity.read(folder), type=identity.Existing, timeout=READ_SECONDS
    )


def _previous(job: Job) -> int | None:
    """The number of the earlier attempt that has the final name; another job's folder is set aside."""
    if not filecopy.exists(job.final):
        return None
    there = _identify(job, job.final)
    if there.attempt_id == summary.attempt_id(job.attempt):
        if not filecopy.exists(job.partial):
            job.final.rename(job.partial)
        return None
    if identity.continues(job.attempt, there):
        return there.restarts
    aside = resultsroot.set_aside(job.final)
    log.warning("%s belonged to another job with this id; renamed to %s", job.final, aside.name)
    return None


def _overtaken(job: Job) -> bool:
    """Whether a later attempt has started, and writes to the same files."""
    prefix = f"{job.attempt.job_id}-"
    names = (path.name for folder in ("running", "ended") for path in (job.settings.state / folder).iterdir())
    restarts = (name.removeprefix(prefix).removesuffix(".json") for name in names if name.startswith(prefix))
    return any((numbers.natural(text) or 0) > job.attempt.restart for text in restarts)


def _put_in_place(job: Job) -> None:
    """Give the folder its final name, and merge what the owner has put into the old folder meanwhile."""
    resultsroot.put_in_place(job.partial, job.final, job.old)
    if filecopy.exists(job.old):
        try:
            asuser.run_as(
                job.user,
                lambda: previousattempts.clear(job.old, job.final),
                type=NoneType,
                timeout=job.settings.job_seconds,
            )
            job.old.rmdir()
        except (PermissionError, errors.ActingError) as error:
            log.warning("job %d: cannot remove %s: %s", job.attempt.job_id, job.old, error)


def _set_comment(job: Job, reason: str) -> None:
    """In the accounting: slurmctld could not be told while it knew the job."""
    try:
        asyncio.run(accounting.set_comment(job.settings.slurm_conf, job.attempt.job_id, reason))
    except errors.SlurmError as error:
        log.warning("job %d: cannot set its comment: %s", job.attempt.job_id, error.message)


def _finish(job: Job, found: contents.Gathered) -> None:
    end = job.attempt.end
    if (
        end is not None
        and job.record is not None
        and (job.attempt.unlaunched or (end.untold and not end.requeue))
    ):
        _set_comment(job, end.reason)
    log.info("job %d: results are in %s", job.attempt.job_id, job.final)
    if job.settings.notifies:
        notify.enqueue(job.settings.state, job.path.name, folder=job.final, summary=found.summary)
    job.path.unlink()
    atomic.sync_directory(job.path.parent)
    _record_path(job.settings, job.attempt).unlink(missing_ok=True)
