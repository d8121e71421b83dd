"""The intake from start to end: opens journal and spool, looks at the folder when something may have changed,
and ends when it is told to, without leaving an answer of Slurm's unwritten.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import sys
import time
from pathlib import Path

from penstock import clock as clocks
from penstock import errors, systemd, wellknown
from penstock.intake import claims, cycle, messages, protocols, publisher, settings
from penstock.journal import database, entries
from penstock.nas import dropfolder, events
from penstock.slurm import spools

log = logging.getLogger(__name__)
LAST_WORDS_SECONDS = 10.0
FORGET_SECONDS = 3600.0
BREATH_SECONDS = 0.05
SCAN_SHARE = 10  # looking may take a tenth of the time at most, however many files there are


class Intake:
    """The folder, the clerk, and what is wrong at the moment."""

    def __init__(self, site: settings.Settings, desk: cycle.Clerk, *, adopt: str = "") -> None:
        self.site, self.desk, self.instance, self.adopt = site, desk, desk.instance, adopt
        self.path = Path(site.folder)
        self.marker = database.fact(desk.journal.connection, "marker")
        self.prepared = False
        self.problem = ""
        self.reporter = publisher.Reporter(Path(site.status), publisher.shared_path(site.folder))
        self.wake = asyncio.Event()
        self.watch: events.Watch | None = None
        self._next_scan = self._earliest_scan = 0.0
        self._next_tidying = 0.0

    def tick(self) -> None:
        """One look; what keeps us from looking is remembered in words and said once."""
        self.desk.collect()
        try:
            self._look()
        except errors.NasUnavailable as error:
            self._unprepare()
            self._give_up(error.message)
        except OSError as error:
            self._give_up(f"{self.path}: {error.strerror or error}")
        else:
            self._say("")
        now = self.desk.clock.now()
        if now >= self._next_tidying:
            self.desk.journal.forget(before=time.time() - self.site.remember_days * 86400)
            self._next_tidying = now + FORGET_SECONDS
        self.reporter.report(self.desk, self.problem, now)

    def _look(self) -> None:
        if not self.prepared:
            self._prepare()
        with dropfolder.opened(self.path, instance=self.instance, marker=self.marker) as folder:
            if not self.desk.recovered:
                if self.adopt:
                    count = claims.adopt(folder, self.adopt)
                    log.info("%d files of intake %s are ours now", count, self.adopt)
                self.desk.recover(folder)
            began = self.desk.clock.now()
            if began >= self._next_scan or (self.wake.is_set() and began >= self._earliest_scan):
                self.wake.clear()
                self.desk.scan(folder, self._moved())
                took = self.desk.clock.now() - began
                self._earliest_scan = began + max(BREATH_SECONDS, SCAN_SHARE * took)
                self._next_scan = max(began + self.site.poll_seconds, self._earliest_scan)
            self.desk.advance(folder)

    def _prepare(self) -> None:
        marker = dropfolder.prepare(
            self.path, instance=self.instance, known=self.marker, readme=messages.README
        )
        self.marker = database.fact(self.desk.journal.connection, "marker", marker)
        self.watch = events.watch(self.path / wellknown.DROP_SUBMIT)
        self._listen()
        self.prepared = True

    def _listen(self) -> None:
        if self.watch:
            asyncio.get_running_loop().add_reader(self.watch.descriptor, self._woken)

    def _woken(self) -> None:
        """Once: the news stay readable until they are read, which is at the next look."""
        if self.watch:
            asyncio.get_running_loop().remove_reader(self.watch.descriptor)
        self.wake.set()

    def _moved(self) -> frozenset[str]:
        """Read the news, and listen for more."""
        moved = self.watch.moved() if self.watch else frozenset()
        self._listen()
        return moved

    def _unprepare(self) -> None:
        """What comes back may be another mount of it: nothing of the old one is watched any longer."""
        if self.watch is not None:
            asyncio.get_running_loop().remove_reader(self.watch.descriptor)
            self.watch.close()
        self.watch, self.prepared = None, False

    def _give_up(self, problem: str) -> None:
        """Until the next poll: what woke us cannot be looked at, and must not wake us for ever."""
        self.wake.clear()
        self._next_scan = 0.0
        self._say(problem)

    def _say(self, problem: str) -> None:
        if problem == self.problem:
            return
        if problem:
            log.error("%s; nothing is done until that is over", problem)
        else:
            log.info("the folder %s is well", self.path)
        self.problem = problem
        systemd.notify(f"STATUS={problem or 'looking at ' + str(self.path)}")

    async def pause(self, stop: asyncio.Event) -> None:
        """Until something may have changed, or a moment has passed; we breathe however much changes."""
        timeout, events = self.site.poll_seconds, [stop, self.wake]
        if self.wake.is_set():
            timeout, events = max(0.0, self._earliest_scan - self.desk.clock.now()), [stop]
        waiting = [asyncio.ensure_future(event.wait()) for event in events]
        tasks = [*self.desk.submissions, *self.desk.questions]
        try:
            await asyncio.wait((*waiting, *tasks), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()

    async def last_words(self) -> None:
        """Let what is under way end, if it does so soon; whoever comes next finds the rest."""
        tasks = [*self.desk.submissions, *self.desk.questions]
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_WORDS_SECONDS)
        for question in self.desk.questions:
            question.cancel()
        await asyncio.gather(*self.desk.questions, return_exceptions=True)
        self.desk.questions.clear()
        self.tick()


def start(site: settings.Settings, *, adopt: str = "", fingerprint: str = "") -> None:
    """Run until SIGTERM or SIGINT; only root can. `fingerprint` is that of its settings file."""
    if os.geteuid() != 0:
        raise errors.UsageError("only root can submit jobs as their files' owners")
    os.umask(0o022)
    state = Path(site.state)
    state.mkdir(mode=0o711, parents=True, exist_ok=True)
    state.chmod(0o711)
    lock = database.lock(state, settings=fingerprint)
    with contextlib.closing(database.connect(state / "journal.db")) as connection:
        spool = spools.Spool(state / "spool")
        slurm = protocols.RealSlurm(spool, slurm_conf=site.slurm_conf, seconds=site.sbatch_seconds)
        journal = entries.Journal(connection)
        instance = database.instance(connection)
        if adopt and (adopt == instance or not re.fullmatch("[0-9a-f]+", adopt)):
            raise errors.UsageError(f"{adopt!r} is not another intake", hint="Its log and .work/ name it.")
        desk = cycle.Clerk(site, journal, slurm, clocks.SystemClock(), instance=instance)
        asyncio.run(_run(site, desk, adopt))
    os.close(lock)


async def _run(site: settings.Settings, desk: cycle.Clerk, adopt: str) -> None:
    if sys.version_info < (3, 12):  # later ones choose it by themselves; no threads beside our forks
        watcher = asyncio.PidfdChildWatcher()
        watcher.attach_loop(asyncio.get_running_loop())
        asyncio.set_child_watcher(watcher)
    intake = Intake(site, desk, adopt=adopt)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    log.info("intake %s looks at %s", desk.instance, site.folder)
    intake.tick()
    systemd.notify("READY=1")
    while not stop.is_set():
        await intake.pause(stop)
        intake.tick()
        systemd.notify("WATCHDOG=1")
    await intake.last_words()
