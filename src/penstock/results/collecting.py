"""One record of an ended attempt becomes one results folder, however often it takes.

The record goes only when the folder is whole and in its place. A lock on it, held by the process that works
on it and by the child that acts as the user, keeps a second collector away, also when the first was killed.
"""

from __future__ import annotations

import dataclasses
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from penstock import errors
from penstock.model import attempts, numbers
from penstock.nas import acting, atomic
from penstock.results import finding, gathering, placing, settings, summary, telling
from penstock.slurm import accounting

log = logging.getLogger(__name__)

LOOK_SECONDS = 60.0
GIVEN_UP = "given-up"


@dataclasses.dataclass(frozen=True)
class Job:
    """One record, and where its results go."""

    settings: settings.Settings
    path: Path
    attempt: attempts.Attempt
    record: accounting.EndedAttempt | None
    user: acting.User

    @property
    def final(self) -> Path:
        shown = self.record.shown_id if self.record else ""
        return self.settings.folder / (shown if finding.JOB.fullmatch(shown) else str(self.attempt.job_id))

    @property
    def partial(self) -> Path:
        return self.settings.folder / f".{summary.attempt_id(self.attempt)}.partial"

    @property
    def old(self) -> Path:
        return self.settings.folder / f".{summary.attempt_id(self.attempt)}.old"


def collect(chosen: settings.Settings, path: Path, record: accounting.EndedAttempt | None) -> bool:
    """Whether the results are whole now and the record is gone."""
    with _locked(path) as content:
        if content is None:
            return True
        placing.prepare(chosen.folder, chosen.state)
        attempt = msgspec.json.decode(content, type=attempts.Attempt)
        try:
            job = Job(chosen, path, attempt, record, acting.User.of(attempt.uid))
            found = _build(job)
        except errors.PenstockError as error:
            return _failed(chosen, path, attempt, error.message)
        if not found.complete:
            return _failed(chosen, path, attempt, found.problem)
        _finish(job, found)
        return True


def _failed(chosen: settings.Settings, path: Path, attempt: attempts.Attempt, problem: str) -> bool:
    """To be tried again; but what fails for days must not keep the job's later attempts waiting for ever."""
    if time.time() < attempt.closed + chosen.give_up_seconds:
        log.warning("job %d: results are incomplete: %s", attempt.job_id, problem)
        return False
    kept = chosen.state / GIVEN_UP
    kept.mkdir(mode=0o700, exist_ok=True)
    path.rename(kept / path.name)
    log.error("job %d: results stay incomplete, the record is in %s: %s", attempt.job_id, kept, problem)
    return True


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


def _build(job: Job) -> gathering.Gathered:
    previous = _previous(job)
    placing.own_folder(job.partial, job.user)
    plan = gathering.Plan(
        attempt=job.attempt,
        record=job.record,
        user=job.user.name,
        folder=str(job.partial),
        results=job.settings.results,
        previous=str(job.final) if previous is not None else "",
        previous_number=previous or 0,
        overtaken=_overtaken(job),
        limits=job.settings.limits,
    )
    found = acting.run_as(
        job.user, lambda: gathering.gather(plan), type=gathering.Gathered, timeout=job.settings.job_seconds
    )
    if not found.complete and not os.path.lexists(job.final):
        job.partial.rename(job.final)  # for its owner to see; it is taken back before the next try
    elif found.complete:
        _put_in_place(job)
    return found


def _previous(job: Job) -> int | None:
    """The number of the earlier attempt whose folder has our name; what else has it makes room."""
    if not os.path.lexists(job.final):
        return None
    there = gathering.Existing()
    if placing.belongs_to(job.final, job.user):
        there = acting.run_as(
            job.user, lambda: gathering.look(job.final), type=gathering.Existing, timeout=LOOK_SECONDS
        )
    if there.attempt_id == summary.attempt_id(job.attempt):
        if not os.path.lexists(job.partial):
            job.final.rename(job.partial)
        return None
    if there.job_id == job.attempt.job_id and 0 <= there.restarts < job.attempt.restart:
        return there.restarts
    aside = placing.set_aside(job.final)
    log.warning("%s was of another job of that number: it is %s now", job.final, aside.name)
    return None


def _overtaken(job: Job) -> bool:
    """Whether a later attempt has begun to write."""
    prefix = f"{job.attempt.job_id}-"
    names = (path.name for folder in ("running", "ended") for path in (job.settings.state / folder).iterdir())
    restarts = (name.removeprefix(prefix).removesuffix(".json") for name in names if name.startswith(prefix))
    return any((numbers.natural(text) or 0) > job.attempt.restart for text in restarts)


def _put_in_place(job: Job) -> None:
    placing.put_in_place(job.partial, job.final, job.old)
    if os.path.lexists(job.old):
        try:
            acting.run_as(
                job.user, lambda: gathering.empty(job.old), type=int, timeout=job.settings.job_seconds
            )
            job.old.rmdir()
        except (OSError, errors.ActingError) as error:
            log.warning("job %d: %s is left over: %s", job.attempt.job_id, job.old, error)


def _finish(job: Job, found: gathering.Gathered) -> None:
    log.info("job %d: results are in %s", job.attempt.job_id, job.final)
    if job.settings.tells:
        telling.leave(job.settings.state, job.path.name, folder=job.final, summary=found.summary)
    job.path.unlink()
    atomic.sync_directory(job.path.parent)
