"""The collector's loop: looks for records, asks Slurm once for all of them, and starts a process for each.

A process of its own for each record, a bounded number in all and for each user: a user with a terabyte of
outputs, a hook that hangs, a storage that does not answer keep nobody else's results waiting. Users take
turns. Single-threaded, because its children go on as copies of it (see nas.acting).
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import itertools
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from penstock import errors, presence, systemd, wellknown
from penstock.model import attempts, jobs, numbers, states
from penstock.results import collection, notify, resultsroot, settings
from penstock.slurm import accounting

log = logging.getLogger(__name__)

AT_ONCE = 200  # records that Slurm is asked about in one go
LONGEST_DELAY = 300.0
TELLERS = 4
SWEEP_SECONDS = 3600.0
BUSY = 0.02  # seconds between two looks while there is work
STOP_SECONDS = 5.0
ROW_SECONDS = 3.0
"""How long after an attempt's end its row in the accounting may still be someone else's or change."""
OWNER_SECONDS = 10.0
"""How long it may say neither whose it is nor of which array: slurmctld tells that of attempts which began
and ended at once every five seconds.
"""
ASK_SECONDS = 30.0
"""How long slurmctld is asked in one go."""
LATE_SECONDS = 30.0
"""How long its row may be missing before slurmctld's own memory, which knows less of it, is enough."""


class _Peek(msgspec.Struct, frozen=True):
    """What the loop needs to know of a record."""

    job_id: int
    restart: int
    uid: int
    launched: float
    closed: float


@dataclasses.dataclass
class _Delay:
    """A record that could not be done yet."""

    until: float
    seconds: float


@dataclasses.dataclass
class Collector:
    """Who is at work on what."""

    settings: settings.Settings
    fingerprint: str = ""
    """Of the settings file, for whoever asks whether a restart is due."""
    now: Callable[[], float] = time.time
    working: dict[int, tuple[str, int]] = dataclasses.field(default_factory=dict)
    """Record and uid by process."""
    telling: dict[int, str] = dataclasses.field(default_factory=dict)
    known: dict[str, jobs.JobRecord] = dataclasses.field(default_factory=dict)
    """What Slurm has told of records."""
    peeked: dict[str, _Peek] = dataclasses.field(default_factory=dict)
    delayed: dict[str, _Delay] = dataclasses.field(default_factory=dict)
    in_vain: dict[str, _Delay] = dataclasses.field(default_factory=dict)
    """Overdue records that Slurm has not told of: when it is asked again."""
    untold: dict[str, _Delay] = dataclasses.field(default_factory=dict)
    """News that could not even be tried to be told."""
    served: dict[int, int] = dataclasses.field(default_factory=dict)
    """Users in the order in which the last process was started for each."""
    began: float = dataclasses.field(default_factory=time.time)
    sweep_at: float = 0.0
    stopping: bool = False
    lock: int | None = None
    """Descriptor of what keeps a second collector away. Not by its children: they may outlive one that was
    killed, and records have locks of their own.
    """

    def run(self) -> None:
        """Until told to stop."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        with _alone(self.settings.state, self.fingerprint) as self.lock:
            self._greet()
            systemd.notify("READY=1")
            while not self.stopping:
                self.round()
                systemd.notify("WATCHDOG=1", f"STATUS={len(self.working)} at work, {len(self.delayed)} later")
                time.sleep(BUSY if self.working else self.settings.interval)
            systemd.notify("STOPPING=1")
            self._end_children()

    def _stop(self, number: int, frame: object) -> None:
        self.stopping = True

    def _greet(self) -> None:
        try:
            resultsroot.prepare(self.settings.folder, self.settings.state)
        except errors.PenstockError as error:
            log.error("%s %s", error.message, error.hint)
        log.info("collecting from %s into %s", self.settings.state, self.settings.results)

    # -- one round ---------------------------------------------------------------------------------

    def round(self) -> None:
        """Reap, choose, ask, start."""
        self._reap()
        waiting = self._records()
        self._ask({name: peek for name, peek in waiting.items() if name not in self.known})
        for name, peek in in_turn(waiting, self.served):
            if self._has_room_for(peek.uid):
                self._start(name, peek)
        self._sweep_now_and_then()
        for name in self._untold():
            self.telling[self._child(functools.partial(notify.tell, self.settings, name))] = name

    def _has_room_for(self, uid: int) -> bool:
        own = sum(1 for _, owner in self.working.values() if owner == uid)
        return len(self.working) < self.settings.workers and own < self.settings.workers_per_user

    def _records(self) -> dict[str, _Peek]:
        """The first attempt that is left of each job, unless it is put off or being worked on."""
        names = {entry.name for entry in os.scandir(self.settings.state / "ended")}
        at_work = {name for name, _ in self.working.values()}
        for memory in (self.delayed, self.known, self.peeked, self.in_vain):
            for name in memory.keys() - names:
                del memory[name]
        ready = (name for name in first_attempts(names) if name not in at_work and not self._is_delayed(name))
        found = ((name, self._peek(name)) for name in ready)
        return {name: peek for name, peek in found if peek is not None}

    def _is_delayed(self, name: str) -> bool:
        return self._is_later(self.delayed, name)

    def _is_later(self, delays: dict[str, _Delay], name: str) -> bool:
        return name in delays and delays[name].until > self.now()

    def _peek(self, name: str) -> _Peek | None:
        if name in self.peeked:
            return self.peeked[name]
        path = self.settings.state / "ended" / name
        try:
            self.peeked[name] = msgspec.json.decode(path.read_bytes(), type=_Peek)
            return self.peeked[name]
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            if not collection.not_understood(self.settings, path, error):
                self._put_off(name)
        except OSError as error:
            log.error("%s cannot be read: %s", path, error)
            self._put_off(name)
        return None

    def _put_off(self, name: str, *, at_most: float = LONGEST_DELAY) -> None:
        self.delayed[name] = self._longer(self.delayed.get(name), at_most)

    def _longer(self, before: _Delay | None, at_most: float) -> _Delay:
        seconds = min(before.seconds * 2, at_most) if before else 1.0
        jitter = random.uniform(0.8, 1.2)  # noqa: S311  # no secret
        return _Delay(self.now() + seconds * jitter, seconds)

    # -- Slurm -------------------------------------------------------------------------------------

    def _ask(self, unknown: dict[str, _Peek]) -> None:
        """How these attempts ended; those that Slurm does not tell yet are put off."""
        due = {name: peek for name, peek in unknown.items() if not self._is_later(self.in_vain, name)}
        asked = dict(itertools.islice(in_turn(due, self.served), AT_ONCE))
        if not asked:
            return
        self.known |= asyncio.run(_ended(self.settings.slurm_conf, asked, self.now()))
        for name, peek in asked.items():
            if name in self.known:
                continue
            if self._is_overdue(peek):  # it may have to wait for a free process
                self.in_vain[name] = self._longer(self.in_vain.get(name), LONGEST_DELAY)
            else:
                self._put_off(name, at_most=8.0)

    def _is_overdue(self, peek: _Peek) -> bool:
        """Counted from when we can have asked: after a power cut Slurm begins no sooner than we do."""
        return self.now() >= max(peek.closed, self.began) + self.settings.patience

    def _start(self, name: str, peek: _Peek) -> None:
        record = self.known.get(name)
        if record is None and not self._is_overdue(peek):
            return
        path = self.settings.state / "ended" / name
        pid = self._child(functools.partial(collection.collect, self.settings, path, record))
        self.working[pid] = (name, peek.uid)
        self.served[peek.uid] = max(self.served.values(), default=0) + 1

    def _sweep_now_and_then(self) -> None:
        """Owners can empty their folders but not remove them from a folder that is root's: we do."""
        if self.now() >= self.sweep_at and "" not in self.telling.values():
            self.sweep_at = self.now() + SWEEP_SECONDS
            self.telling[self._child(functools.partial(resultsroot.remove_empty, self.settings.folder))] = ""

    def _untold(self) -> Iterator[str]:
        if not self.settings.tells:
            return
        at_work = set(self.telling.values())
        for entry in sorted(os.scandir(self.settings.state / notify.FOLDER), key=lambda one: one.name):
            if len(self.telling) >= TELLERS:
                return
            if entry.name in at_work or self._is_later(self.untold, entry.name):
                continue
            if entry.name.endswith(".json") and not entry.name.startswith("."):
                yield entry.name

    # -- children ----------------------------------------------------------------------------------

    def _child(self, work: Callable[[], bool]) -> int:
        """A process that does this one thing; its exit code says whether it is done."""
        pid = os.fork()
        if pid == 0:
            if self.lock is not None:
                os.close(self.lock)
            _be_the_child(work)
        return pid

    def _reap(self) -> None:
        for pid in (*self.working, *self.telling):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self._ended(pid, os.waitstatus_to_exitcode(status))

    def _ended(self, pid: int, code: int) -> None:
        if told := self.telling.pop(pid, ""):
            self._has_told(told, code)
        name, _ = self.working.pop(pid, ("", 0))
        if not name:
            return
        if code:
            self._put_off(name)
        else:
            self.delayed.pop(name, None)

    def _has_told(self, name: str, code: int) -> None:
        before = self.untold.pop(name, None)
        if code:
            self.untold[name] = self._longer(before, LONGEST_DELAY)

    def _end_children(self) -> None:
        """What they were at is found again by the next collector."""
        deadline = time.monotonic() + STOP_SECONDS
        for pid in (*self.working, *self.telling):
            os.kill(pid, signal.SIGTERM)
        while (self.working or self.telling) and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.02)
        for pid in (*self.working, *self.telling):
            os.kill(pid, signal.SIGKILL)


def first_attempts(names: Iterable[str]) -> list[str]:
    """The lowest attempt of each job: a job's attempts are collected in their order."""
    first: dict[int, int] = {}
    for name in names:
        words = name.removesuffix(".json").partition("-")
        job, restart = numbers.natural(words[0]), numbers.natural(words[2])
        if name.endswith(".json") and job is not None and restart is not None:
            first[job] = min(restart, first.get(job, restart))
    return [attempts.record_name(job, restart) for job, restart in sorted(first.items())]


def in_turn(records: dict[str, _Peek], served: Mapping[int, int]) -> Iterator[tuple[str, _Peek]]:
    """One of each user, then the second of each, and so on; a user's own in the order they ended.

    Who was served last is the last to come.
    """
    queues: dict[int, collections.deque[tuple[str, _Peek]]] = {}
    for name, peek in sorted(records.items(), key=lambda item: item[1].closed):
        queues.setdefault(peek.uid, collections.deque()).append((name, peek))
    while queues:
        for uid in sorted(queues, key=lambda uid: served.get(uid, 0)):
            yield queues[uid].popleft()
            if not queues[uid]:
                del queues[uid]


@dataclasses.dataclass
class _Controller:
    """slurmctld, which is asked about one attempt after the other.

    Not again once it has not answered, nor for longer than the whole loop can stand still: who was not asked
    about comes next time.
    """

    slurm_conf: str
    until: float
    is_heard: bool = True

    async def told(self, peek: _Peek) -> jobs.JobRecord | None:
        """What it knows of the attempt; SlurmUnavailable when that cannot be known now."""
        if not self.is_heard:
            raise errors.SlurmUnavailable("slurmctld is not asked any more this time")
        self.is_heard = False
        try:
            found = await accounting.remembered(
                self.slurm_conf, peek.job_id, uid=peek.uid, restart=peek.restart
            )
        except errors.SlurmUnavailable as error:
            log.warning("Slurm does not tell how jobs ended: %s", error.message)
            raise
        self.is_heard = time.monotonic() < self.until
        return found


async def _ended(slurm_conf: str, chosen: dict[str, _Peek], now: float) -> dict[str, jobs.JobRecord]:
    """By name of the record."""
    controller = _Controller(slurm_conf, time.monotonic() + ASK_SECONDS)
    rows: Sequence[jobs.JobRecord] | None = None
    try:
        rows = await accounting.ended(slurm_conf, sorted({peek.job_id for peek in chosen.values()}))
    except errors.SlurmError as error:
        log.debug("no accounting: %s", error.message)
    found: dict[str, jobs.JobRecord] = {}
    for name, peek in chosen.items():
        settled = now >= peek.closed + ROW_SECONDS
        try:
            row = await _row(controller, rows, peek, waited=now - peek.closed)
        except errors.SlurmUnavailable as error:
            log.debug("job %d: %s", peek.job_id, error.message)
            continue
        if row is not None and (settled or not row.may_change):
            found[name] = row
    return found


async def _row(
    controller: _Controller,
    rows: Sequence[jobs.JobRecord] | None,
    peek: _Peek,
    *,
    waited: float,
) -> jobs.JobRecord | None:
    """Without accounting slurmctld's word is all there is; where there is one, no row may mean not yet."""
    if rows is None:
        return await controller.told(peek)
    row = accounting.attempt_among(rows, job_id=peek.job_id, uid=peek.uid, launched=peek.launched)
    if row is None and waited >= ROW_SECONDS:
        return await _without_own_row(controller, rows, peek, waited=waited)
    return row


async def _without_own_row(
    controller: _Controller, rows: Iterable[jobs.JobRecord], peek: _Peek, *, waited: float
) -> jobs.JobRecord | None:
    """A row that does not say whose it is, or slurmctld's word that a later attempt has come after this one.

    That one's output takes the place of this one's: to wait longer would be to lose it. Of an end slurmctld
    is believed only when the accounting is late: it forgets the end soon, but may know it alone. The name of
    an array's task it knows in any case.
    """
    row = accounting.attempt_among(
        rows, job_id=peek.job_id, uid=accounting.OWNER_UNKNOWN, launched=peek.launched
    )
    told = await controller.told(peek)
    if row is not None and waited >= OWNER_SECONDS:
        name = told.shown_id if told is not None else row.shown_id
        return msgspec.structs.replace(row, uid=peek.uid, shown_id=name)
    believed = told is not None and (waited >= LATE_SECONDS or told.state == states.JobState.REQUEUED)
    return told if believed else None


def _be_the_child(work: Callable[[], bool]) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGTERM, _leave)
        code = 0 if work() else 1
    except errors.PenstockError as error:
        log.warning("%s %s", error.message, error.hint)
    except OSError as error:
        log.warning("%s", error)
    except SystemExit:
        code = 1
    except BaseException:
        log.exception("a record could not be worked on")
    finally:
        os._exit(code)


def _leave(number: int, frame: object) -> NoReturn:
    """Through every `finally`: the child that acts as the user must not outlive us."""
    raise SystemExit(1)


@contextlib.contextmanager
def _alone(state: Path, fingerprint: str = "") -> Iterator[int]:
    """One collector for one state directory; the others are told so."""
    if not (state / "ended").is_dir():
        raise errors.UsageError(
            f"{state} has no folder `ended`",
            hint="It belongs to penstockd, which makes it; start that first.",
        )
    (state / notify.FOLDER).mkdir(mode=0o700, exist_ok=True)
    try:
        descriptor = presence.hold(state / wellknown.COLLECTOR_LOCK, fingerprint)
    except BlockingIOError as error:
        raise errors.UsageError(f"another collector works on {state}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
