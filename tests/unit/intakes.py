"""Test harness of the intake: the real clerk and folder, a fake Slurm with a memory, and injected crashes."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import pwd
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import errors
from penstock.intake import cycle, settings, slurmaccess
from penstock.journal import database, entries
from penstock.nas import dropfolder
from penstock.slurm import answers, spools, submissions

USERS = tuple(pwd.getpwnam(name).pw_uid for name in ("nobody", "games", "mail"))
SCRIPT = "#!/bin/sh\ntrue\n"


class Crash(BaseException):
    """The process is killed here."""


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


@dataclasses.dataclass
class Faults:
    """Counts the points passed and raises Crash at the chosen one, once."""

    crash_at: int = -1
    passed: int = 0

    def point(self) -> None:
        self.passed += 1
        if self.passed - 1 == self.crash_at:
            raise Crash


@dataclasses.dataclass
class FakeSlurm(slurmaccess.SlurmAccess):
    """Slurm and the spool, which survive a crash of the intake."""

    faults: Faults
    jobs: list[submissions.Submission] = dataclasses.field(default_factory=list)
    traces: dict[str, answers.Answer] = dataclasses.field(default_factory=dict)
    saying: list[answers.Answer] = dataclasses.field(default_factory=list)
    """Answers to the next submissions, instead of a job."""
    traceless: bool = False
    """sbatch is always killed with the intake and leaves no trace."""
    under_way: set[str] = dataclasses.field(default_factory=set)
    asked: int = 0
    real_spool: spools.Spool | None = None
    """For tests of its files; sbatch writes nothing to it."""
    silent: int = 0
    """Number of questions that fail."""
    blind: int = 0
    """Number of following answers without the jobs that accounting does not know yet."""

    async def submit(self, wanted: submissions.Submission) -> answers.Answer:
        self.faults.point()
        self.traces[wanted.token] = answers.Answer("unknown")
        if self.saying:
            return self.saying.pop(0)
        self.jobs.append(wanted)
        answer = answers.Answer("accepted", job_id=str(len(self.jobs)))
        if not self.traceless:
            self.traces[wanted.token] = answer
        self.faults.point()
        return answer

    async def find(self, uid: int, tokens: Collection[str], *, since: float) -> dict[str, str]:
        self.asked += 1
        if self.silent:
            self.silent -= 1
            raise errors.SlurmUnavailable("sacct: slurmdbd is away")
        if self.blind:
            self.blind -= 1
            return {}
        numbered = enumerate(self.jobs, start=1)
        return {job.token: str(number) for number, job in numbered if job.uid == uid and job.token in tokens}

    def trace(self, token: str) -> answers.Answer | None:
        if self.real_spool is not None:
            return self.real_spool.read(token, code=None) if self.real_spool.started(token) else None
        return self.traces.get(token)

    def running(self, token: str) -> bool:
        return token in self.under_way

    def rebooted(self) -> bool:
        return self.real_spool is not None and not self.real_spool.same_boot

    def keep_doubt(self, tokens: Collection[str]) -> None:
        self.faults.point()
        if self.real_spool is not None:
            self.real_spool.keep_doubt(tokens)

    def clear(self, token: str) -> None:
        self.faults.point()
        if self.real_spool is not None:
            self.real_spool.clear(token)
        self.traces.pop(token, None)


class FaultyJournal(entries.Journal):
    """A journal that may crash just before and just after every write."""

    def __init__(self, journal: entries.Journal, faults: Faults) -> None:
        super().__init__(journal.connection)
        self.faults = faults

    def put(self, entry: entries.Entry) -> entries.Entry:
        self.faults.point()
        done = super().put(entry)
        self.faults.point()
        return done


class Harness:
    """One intake: a process that can be started again and again on the same journal."""

    def __init__(self, folder: Path, state: Path, slurm: FakeSlurm, clock: Clock, **choices: Any) -> None:
        self.folder, self.slurm, self.clock = folder, slurm, clock
        state.mkdir(parents=True, exist_ok=True)
        self.connection = database.connect(state / "journal.db")
        self.instance = database.instance(self.connection)
        plain = settings.Settings(folder=str(folder), state=str(state), slurm_conf="", settle_seconds=1.0)
        self.site = msgspec.structs.replace(plain, **{"uncertain_seconds": 5.0, **choices})
        self.marker = dropfolder.prepare(folder, instance=self.instance, known="", readme="")
        self.start()

    def start(self) -> None:
        journal = FaultyJournal(entries.Journal(self.connection), self.slurm.faults)
        self.clerk = cycle.Clerk(self.site, journal, self.slurm, self.clock, instance=self.instance)

    async def die(self) -> None:
        """Kill the process: tasks that have not begun are never done."""
        tasks = [*self.clerk.submissions, *self.clerk.questions]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def look(self, *, step: float = 1.0) -> None:
        """One pass; then time passes and answers arrive."""
        self.clerk.collect()
        with dropfolder.opened(self.folder, instance=self.instance, marker=self.marker) as folder:
            if not self.clerk.recovered:
                self.clerk.recover(folder)
            self.clerk.scan(folder, frozenset())
            self.clerk.advance(folder)
        self.clock.time += step
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def settle(self, *, looks: int = 300) -> None:
        """Run passes until nothing is left to do; after a crash, start again."""
        for _ in range(looks):
            try:
                await self.look()
            except Crash:
                await self.die()
                self.start()
                continue
            if not self.clerk.claims and not any((self.folder / "submit").iterdir()):
                return
        raise AssertionError(f"not done: {self.clerk.claims}, {list((self.folder / 'submit').iterdir())}")


def drop(folder: Path, name: str, *, uid: int = USERS[0], text: str = SCRIPT, mode: int = 0o644) -> Path:
    """Create a file in submit/ as this user."""
    path = folder / "submit" / name
    path.write_text(text)
    path.chmod(mode)
    os.chown(path, uid, pwd.getpwuid(uid).pw_gid)
    return path


def after(earlier: Path, write: Callable[[], Path]) -> None:
    """Write until the file system's clock, whose ticks may be long, shows a later time."""
    before = earlier.stat().st_ctime_ns
    for _ in range(5000):
        if write().stat().st_ctime_ns > before:
            return
        time.sleep(0.001)
    raise AssertionError("the file system's clock stands still")


def filed(folder: Path, which: str) -> Iterator[str]:
    """File names in processed/ or failed/, of all days."""
    return (path.name for path in sorted((folder / which).glob("*/*")))


@pytest.fixture
def nas(tmp_path: Path) -> Path:
    folder = tmp_path / "nas"
    folder.mkdir()
    return folder


def harness(nas: Path, slurm: FakeSlurm | None = None, *, name: str = "state", **choices: Any) -> Harness:
    made = slurm or FakeSlurm(Faults())
    return Harness(nas, nas.parent / name, made, Clock(), **choices)


def assert_once(nas: Path, slurm: FakeSlurm, names: tuple[str, ...]) -> None:
    """Each file is one job and is in processed/ under the job's id; nothing is left."""
    assert sorted(job.name for job in slurm.jobs) == sorted(names)
    expected = sorted(f"{job.name}.{number}" for number, job in enumerate(slurm.jobs, start=1))
    assert sorted(filed(nas, "processed")) == expected
    assert not any((nas / "submit").iterdir())
    assert list((nas / ".work").glob("*/*")) == []


def letter(folder: Path) -> tuple[str, int]:
    """Text and owner of the only error text."""
    (path,) = folder.glob("failed/*/*.error.txt")
    return path.read_text(), path.stat().st_uid
