"""The collector's loop: finds records, asks Slurm once for all of them, and starts a process for each.

Each record has its own process, limited in total and per user, so that a user with a terabyte of outputs, a
hook that hangs or a storage that does not answer delays nobody else's results. Users take turns. The loop is
single-threaded, because its children are forks that go on (see nas.asuser).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from penstock import errors, presence, systemd, wellknown
from penstock.model import jobs
from penstock.results import children, collection, endings, notify, recordqueue, resultsroot, settings
from penstock.results.recordqueue import Head

log = logging.getLogger(__name__)

AT_ONCE = 200  # records that Slurm is asked about in one round
LONGEST_DELAY = 300.0
NOTIFIERS = 4
SWEEP_SECONDS = 3600.0
BUSY = 0.02  # seconds between two rounds while there is work
STOP_SECONDS = 5.0


@dataclasses.dataclass
class _Delay:
    """When to try again, and the delay before that."""

    until: float
    seconds: float


@dataclasses.dataclass
class Collector:
    settings: settings.Settings
    fingerprint: str = ""
    """Of the settings file, by which others see whether a restart is due."""
    now: Callable[[], float] = time.time
    working: dict[int, tuple[str, int]] = dataclasses.field(default_factory=dict)
    """Record and uid by process."""
    notifying: dict[int, str] = dataclasses.field(default_factory=dict)
    """Record by process; empty for the sweep."""
    known: dict[str, jobs.JobRecord] = dataclasses.field(default_factory=dict)
    """Slurm's record by name of ours."""
    heads: dict[str, Head] = dataclasses.field(default_factory=dict)
    delayed: dict[str, _Delay] = dataclasses.field(default_factory=dict)
    """Records whose collection is retried later."""
    unanswered: dict[str, _Delay] = dataclasses.field(default_factory=dict)
    """Overdue records that Slurm did not know: when it is asked again."""
    unnotified: dict[str, _Delay] = dataclasses.field(default_factory=dict)
    """Records whose notification failed as a whole: when it is retried."""
    served: dict[int, int] = dataclasses.field(default_factory=dict)
    """Users in the order in which the last process was started for each."""
    began: float = dataclasses.field(default_factory=time.time)
    sweep_at: float = 0.0
    stopping: bool = False
    lock: int | None = None
    """Descriptor of the state directory's lock. Children, which may outlive a collector, do not keep it."""

    def run(self) -> None:
        """Run until SIGTERM or SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        with _locked(self.settings.state, self.fingerprint) as self.lock:
            self._check_folder()
            systemd.notify("READY=1")
            while not self.stopping:
                self.round()
                status = f"{len(self.working)} being collected, {len(self.delayed)} delayed"
                systemd.notify("WATCHDOG=1", f"STATUS={status}")
                time.sleep(BUSY if self.working else self.settings.interval)
            systemd.notify("STOPPING=1")
            self._end_children()

    def _stop(self, number: int, frame: object) -> None:
        self.stopping = True

    def _check_folder(self) -> None:
        try:
            resultsroot.prepare(self.settings.folder, self.settings.state)
        except errors.PenstockError as error:
            log.error("%s %s", error.message, error.hint)
        log.info("collecting from %s into %s", self.settings.state, self.settings.results)

    def round(self) -> None:
        """Reap children, ask Slurm about new records, start children."""
        self._reap()
        waiting = self._records()
        self._ask({name: head for name, head in waiting.items() if name not in self.known})
        for name, head in recordqueue.in_turn(waiting, self.served):
            if self._has_room_for(head.uid):
                self._start(name, head)
        self._sweep_if_due()
        for name in self._due_notices():
            self.notifying[self._fork(functools.partial(notify.send, self.settings, name))] = name

    def _has_room_for(self, uid: int) -> bool:
        own = sum(1 for _, owner in self.working.values() if owner == uid)
        return len(self.working) < self.settings.workers and own < self.settings.workers_per_user

    def _records(self) -> dict[str, Head]:
        """The first attempt of each job, unless it is delayed or being collected."""
        names = {entry.name for entry in os.scandir(self.settings.state / "ended")}
        at_work = {name for name, _ in self.working.values()}
        for memory in (self.delayed, self.known, self.heads, self.unanswered):
            for name in memory.keys() - names:
                del memory[name]
        found = {}
        for name in recordqueue.first_attempts(names):
            if name not in at_work and not self._is_later(self.delayed, name):
                head = self._head(name)
                if head is not None:
                    found[name] = head
        return found

    def _is_later(self, delays: dict[str, _Delay], name: str) -> bool:
        return name in delays and delays[name].until > self.now()

    def _head(self, name: str) -> Head | None:
        if name in self.heads:
            return self.heads[name]
        path = self.settings.state / "ended" / name
        try:
            self.heads[name] = msgspec.json.decode(path.read_bytes(), type=Head)
            return self.heads[name]
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            if not collection.give_up_invalid(self.settings, path, error):
                self._delay(self.delayed, name)
        except OSError as error:
            log.error("%s cannot be read: %s", path, error)
            self._delay(self.delayed, name)
        return None

    def _delay(self, delays: dict[str, _Delay], name: str, *, at_most: float = LONGEST_DELAY) -> None:
        """Exponential backoff with jitter."""
        seconds = min(delays[name].seconds * 2, at_most) if name in delays else 1.0
        jitter = random.uniform(0.8, 1.2)  # noqa: S311  # no secret
        delays[name] = _Delay(self.now() + seconds * jitter, seconds)

    def _ask(self, unknown: dict[str, Head]) -> None:
        """Ask Slurm how these attempts ended; those that it does not know yet are delayed."""
        due = {name: head for name, head in unknown.items() if not self._is_later(self.unanswered, name)}
        asked = dict(itertools.islice(recordqueue.in_turn(due, self.served), AT_ONCE))
        if not asked:
            return
        self.known |= asyncio.run(endings.ended(self.settings.slurm_conf, asked, self.now()))
        for name, head in asked.items():
            if name in self.known:
                continue
            if self._is_overdue(head):  # collected without Slurm, when a process is free
                self._delay(self.unanswered, name)
            else:
                self._delay(self.delayed, name, at_most=8.0)

    def _is_overdue(self, head: Head) -> bool:
        """Counted from our start at the earliest: after a power cut Slurm starts no sooner than we do."""
        return self.now() >= max(head.closed, self.began) + self.settings.patience

    def _start(self, name: str, head: Head) -> None:
        record = self.known.get(name)
        if record is None and not self._is_overdue(head):
            return
        path = self.settings.state / "ended" / name
        pid = self._fork(functools.partial(collection.collect, self.settings, path, record))
        self.working[pid] = (name, head.uid)
        self.served[head.uid] = max(self.served.values(), default=0) + 1

    def _sweep_if_due(self) -> None:
        """Remove emptied folders: their owners cannot, because the results folder belongs to root."""
        if self.now() >= self.sweep_at and "" not in self.notifying.values():
            self.sweep_at = self.now() + SWEEP_SECONDS
            sweep = functools.partial(resultsroot.remove_empty, self.settings.folder)
            self.notifying[self._fork(sweep)] = ""

    def _due_notices(self) -> Iterator[str]:
        if not self.settings.notifies:
            return
        at_work = set(self.notifying.values())
        for entry in sorted(os.scandir(self.settings.state / notify.FOLDER), key=lambda one: one.name):
            if len(self.notifying) >= NOTIFIERS:
                return
            if entry.name in at_work or self._is_later(self.unnotified, entry.name):
                continue
            if entry.name.endswith(".json") and not entry.name.startswith("."):
                yield entry.name

    def _fork(self, work: Callable[[], bool]) -> int:
        return children.fork(work, lock=self.lock)

    def _reap(self) -> None:
        for pid in (*self.working, *self.notifying):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self._ended(pid, os.waitstatus_to_exitcode(status))

    def _ended(self, pid: int, code: int) -> None:
        notified, (collected, _) = self.notifying.pop(pid, ""), self.working.pop(pid, ("", 0))
        for name, delays in ((notified, self.unnotified), (collected, self.delayed)):
            if name and code:
                self._delay(delays, name)
            elif name:
                delays.pop(name, None)

    def _end_children(self) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        for pid in (*self.working, *self.notifying):
            os.kill(pid, signal.SIGTERM)
        while (self.working or self.notifying) and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.02)
        for pid in (*self.working, *self.notifying):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def _locked(state: Path, fingerprint: str = "") -> Iterator[int]:
    if not (state / "ended").is_dir():
        raise errors.UsageError(
            f"{state} has no folder `ended`", hint="penstockd creates it; start penstockd first."
        )
    (state / notify.FOLDER).mkdir(mode=0o700, exist_ok=True)
    try:
        descriptor = presence.hold(state / wellknown.COLLECTOR_LOCK, fingerprint)
    except BlockingIOError as error:
        raise errors.UsageError(f"another collector uses {state}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
