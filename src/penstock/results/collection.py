"""One record of an ended attempt becomes one results folder, however often it takes.

The record goes only when the folder is whole and in its place. A lock on it, held by the process that works
on it and by the child that acts as the user, keeps a second collector away, also when the first was killed.
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

LOOK_SECONDS = 60.0
GIVEN_UP = "given-up"
TOLD = "told"


@dataclasses.dataclass(frozen=True)
class Job:
    """One record, and where its results go."""

    settings: settings.Settings
    path: Path
    attempt: attempts.Attempt
    record: jobs.JobRecord | None
    user: asuser.User
    is_last: bool = False
    """The last try: what fails for days must not keep the job's later attempts waiting for ever."""

    @property
    def final(self) -> Path:
        shown = summary.shown_id(self.attempt, self.record)
        return self.settings.folder / (
            shown if resultpaths.JOB.fullmatch(shown) else str(self.attempt.job_id)
        )

    @property
    def partial(self) -> Path:
        return self.settings.folder / f".{summary.attempt_id(self.attempt)}.partial"

    @property
    def old(self) -> Path:
        return self.settings.folder / f".{summary.attempt_id(self.attempt)}.old"


def collect(chosen: settings.Settings, path: Path, record: jobs.JobRecord | None) -> bool:
    """Whether the results are whole now and the record is gone."""
    with _locked(path) as content:
        if content is None:
            return not path.exists()  # else a child of a collector that was killed is still at it
        resultsroot.prepare(chosen.folder, chosen.state)
        try:
            attempt = msgspec.json.decode(content, type=attempts.Attempt)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return not_understood(chosen, path, error)
        is_last = time.time() >= attempt.closed + chosen.give_up_seconds
        try:
            known = _remembered(chosen, attempt, record)
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
    """To be tried again, or put away; whether nothing is left to do."""
    if not is_last:
        log.warning("job %d: results are incomplete: %s", attempt.job_id, problem)
        return False
    kept = _put_away(chosen, path)
    _told(chosen, attempt).unlink(missing_ok=True)
    log.error("job %d: results stay incomplete, the record is in %s: %s", attempt.job_id, kept, problem)
    return True


def not_understood(chosen: settings.Settings, path: Path, error: Exception) -> bool:
    """A record that is none, or that a later release has written: to be tried again, or put away in time."""
    with suppress(FileNotFoundError):
        if time.time() < path.stat().st_mtime + chosen.give_up_seconds:
            log.error("%s is no record that we understand: %s", path, error)
            return False
        log.error("%s was never understood and is in %s now: %s", path, _put_away(chosen, path), error)
    return True


def _put_away(chosen: settings.Settings, path: Path) -> Path:
    kept = chosen.state / GIVEN_UP
    kept.mkdir(mode=0o700, exist_ok=True)
    path.rename(kept / path.name)
    return kept


def _told(chosen: settings.Settings, attempt: attempts.Attempt) -> Path:
    return chosen.state / TOLD / f"{summary.attempt_id(attempt)}.json"


def _remembered(
    chosen: settings.Settings, attempt: attempts.Attempt, record: jobs.JobRecord | None
) -> jobs.JobRecord | None:
    """What Slurm tells of the attempt, or told at an earlier try: it forgets, and the folder has its name
    from that.
    """
    path = _told(chosen, attempt)
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
    """The record's content, for us alone; None when somebody else has it or is done with it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        yield None
        return
    try:
        yield _content(path, descriptor)
    finally:
        os.close(descriptor)


def _content(path: Path, descriptor: int) -> bytes | None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        same = path.stat().st_ino == os.fstat(descriptor).st_ino
    except (BlockingIOError, FileNotFoundError):
        return None
    return os.read(descriptor, os.fstat(descriptor).st_size) if same else None


def _build(job: Job) -> contents.Gathered:
    _take_back(job)
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
    elif found.says_so and not filecopy.is_there(job.final):
        job.partial.rename(job.final)  # for its owner to see; it is taken back before the next try
    return found


def _take_back(job: Job) -> None:
    """What was shown under the task's own number before Slurm told of which array it is."""
    shown = job.settings.folder / str(job.attempt.job_id)
    if shown == job.final or filecopy.is_there(job.partial) or not filecopy.is_there(shown):
        return
    with suppress(PermissionError):  # another job's of that number, which its owner has closed
        if _look(job, shown).attempt_id == summary.attempt_id(job.attempt):
            shown.rename(job.partial)


def _look(job: Job, folder: Path) -> identity.Existing:
    """Nothing of what is not the user's."""
    if not resultsroot.belongs_to(folder, job.user):
        return identity.Existing()
    return asuser.run_as(
        job.user, lambda: identity.look(folder), type=identity.Existing, timeout=LOOK_SECONDS
    )


def _previous(job: Job) -> int | None:
    """The number of the earlier attempt whose folder has our name; what else has it makes room."""
    if not filecopy.is_there(job.final):
        return None
    there = _look(job, job.final)
    if there.attempt_id == summary.attempt_id(job.attempt):
        if not filecopy.is_there(job.partial):
            job.final.rename(job.partial)
        return None
    if identity.continues(job.attempt, there):
        return there.restarts
    aside = resultsroot.set_aside(job.final)
    log.warning("%s was of another job of that number: it is %s now", job.final, aside.name)
    return None


def _overtaken(job: Job) -> bool:
    """Whether a later attempt has begun to write."""
    prefix = f"{job.attempt.job_id}-"
    names = (path.name for folder in ("running", "ended") for path in (job.settings.state / folder).iterdir())
    restarts = (name.removeprefix(prefix).removesuffix(".json") for name in names if name.startswith(prefix))
    return any((numbers.natural(text) or 0) > job.attempt.restart for text in restarts)


def _put_in_place(job: Job) -> None:
    """What the owner has put into the old folder meanwhile is moved; a storage that fails is waited for."""
    resultsroot.put_in_place(job.partial, job.final, job.old)
    if filecopy.is_there(job.old):
        try:
            asuser.run_as(
                job.user,
                lambda: previousattempts.clear(job.old, job.final),
                type=NoneType,
                timeout=job.settings.job_seconds,
            )
            job.old.rmdir()
        except (PermissionError, errors.ActingError) as error:
            log.warning("job %d: %s is left over: %s", job.attempt.job_id, job.old, error)


def _comment(job: Job, reason: str) -> None:
    """Nobody could say it in slurmctld while the job lived."""
    try:
        asyncio.run(accounting.set_comment(job.settings.slurm_conf, job.attempt.job_id, reason))
    except errors.SlurmError as error:
        log.warning("job %d: its comment does not say why it ended: %s", job.attempt.job_id, error.message)


def _finish(job: Job, found: contents.Gathered) -> None:
    end = job.attempt.end
    if (
        end is not None
        and job.record is not None
        and (job.attempt.unlaunched or (end.untold and not end.requeue))
    ):
        _comment(job, end.reason)
    log.info("job %d: results are in %s", job.attempt.job_id, job.final)
    if job.settings.tells:
        notify.leave(job.settings.state, job.path.name, folder=job.final, summary=found.summary)
    job.path.unlink()
    atomic.sync_directory(job.path.parent)
    _told(job.settings, job.attempt).unlink(missing_ok=True)
