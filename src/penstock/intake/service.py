"""The intake's main loop: scans the folder when something may have changed, until SIGTERM."""

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
from penstock.intake import claims, cycle, messages, publisher, settings, slurmaccess
from penstock.journal import database, entries
from penstock.nas import dropfolder, events
from penstock.slurm import spools

log = logging.getLogger(__name__)
FINISH_SECONDS = 10.0
FORGET_SECONDS = 3600.0
BREATH_SECONDS = 0.05
SCAN_SHARE = 10  # scans take at most a tenth of the time, however many files there are


class Intake:
    def __init__(self, site: settings.Settings, clerk: cycle.Clerk, *, adopt: str = "") -> None:
        self.site, self.clerk, self.instance, self.adopt = site, clerk, clerk.instance, adopt
        self.path = Path(site.folder)
        self.marker = database.fact(clerk.journal.connection, "marker")
        self.prepared = False
        self.problem = ""
        self.reporter = publisher.Reporter(Path(site.status), self.path / wellknown.DROP_INDEX)
        self.wake = asyncio.Event()
        self.watch: events.Watch | None = None
        self._next_scan = self._earliest_scan = 0.0
        self._next_tidying = 0.0

    def tick(self) -> None:
        """One pass; a problem that prevents it is logged once and shown in the inbox."""
        self.clerk.collect()
        try:
            self._process()
        except errors.NasUnavailable as error:
            self._close_folder()
            self._fail(error.message)
        except OSError as error:
            self._fail(f"{self.path}: {error.strerror or error}")
        else:
            self._set_problem("")
        now = self.clerk.clock.now()
        if now >= self._next_tidying:
            self.clerk.journal.forget(before=time.time() - self.site.remember_days * 86400)
            self._next_tidying = now + FORGET_SECONDS
        self.reporter.report(self.clerk, self.problem, now)

    def _process(self) -> None:
        if not self.prepared:
            self._prepare()
        with dropfolder.opened(self.path, instance=self.instance, marker=self.marker) as folder:
            if not self.clerk.recovered:
                if self.adopt:
                    count = claims.adopt(folder, self.adopt)
                    log.info("took over %d files of intake %s", count, self.adopt)
                self.clerk.recover(folder)
            began = self.clerk.clock.now()
            if began >= self._next_scan or (self.wake.is_set() and began >= self._earliest_scan):
                self.wake.clear()
                self.clerk.scan(folder, self._moved())
                took = self.clerk.clock.now() - began
                self._earliest_scan = began + max(BREATH_SECONDS, SCAN_SHARE * took)
                self._next_scan = max(began + self.site.poll_seconds, self._earliest_scan)
            self.clerk.advance(folder)

    def _prepare(self) -> None:
        marker = dropfolder.prepare(
            self.path, instance=self.instance, known=self.marker, readme=messages.README
        )
        self.marker = database.fact(self.clerk.journal.connection, "marker", marker)
        self.watch = events.watch(self.path / wellknown.DROP_SUBMIT)
        self._listen()
        self.prepared = True

    def _listen(self) -> None:
        if self.watch:
            asyncio.get_running_loop().add_reader(self.watch.descriptor, self._woken)

    def _woken(self) -> None:
        """Stop listening: the events stay readable until the next scan reads them."""
        if self.watch:
            asyncio.get_running_loop().remove_reader(self.watch.descriptor)
        self.wake.set()

    def _moved(self) -> frozenset[str]:
        """Read the events, and listen again."""
        moved = self.watch.moved() if self.watch else frozenset()
        self._listen()
        return moved

    def _close_folder(self) -> None:
        """Stop watching: the folder may come back as another mount."""
        if self.watch is not None:
            asyncio.get_running_loop().remove_reader(self.watch.descriptor)
            self.watch.close()
        self.watch, self.prepared = None, False

    def _fail(self, problem: str) -> None:
        """Wait for the next poll: an event that cannot be read must not wake us forever."""
        self.wake.clear()
        self._next_scan = 0.0
        self._set_problem(problem)

    def _set_problem(self, problem: str) -> None:
        if problem == self.problem:
            return
        if problem:
            log.error("%s; no file is submitted until this is fixed", problem)
        else:
            log.info("the folder %s is available", self.path)
        self.problem = problem
        systemd.notify(f"STATUS={problem or 'watching ' + str(self.path)}")

    async def pause(self, stop: asyncio.Event) -> None:
        """Wait for a change or the next poll; at least BREATH_SECONDS between scans, whatever changes."""
        timeout, events = self.site.poll_seconds, [stop, self.wake]
        if self.wake.is_set():
            timeout, events = max(0.0, self._earliest_scan - self.clerk.clock.now()), [stop]
        waiting = [asyncio.ensure_future(event.wait()) for event in events]
        tasks = [*self.clerk.submissions, *self.clerk.questions]
        try:
            await asyncio.wait((*waiting, *tasks), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()

    async def finish(self) -> None:
        """Wait a moment for submissions under way; the next start recovers the rest."""
        tasks = [*self.clerk.submissions, *self.clerk.questions]
        if tasks:
            await asyncio.wait(tasks, timeout=FINISH_SECONDS)
        for question in self.clerk.questions:
            question.cancel()
        await asyncio.gather(*self.clerk.questions, return_exceptions=True)
        self.clerk.questions.clear()
        self.tick()


def start(site: settings.Settings, *, adopt: str = "", fingerprint: str = "") -> None:
    """Run until SIGTERM or SIGINT, as root. `fingerprint` is that of the settings file."""
    if os.geteuid() != 0:
        raise errors.UsageError("only root can submit jobs as their files' owners")
    os.umask(0o022)
    state = Path(site.state)
    state.mkdir(mode=0o711, parents=True, exist_ok=True)
    state.chmod(0o711)
    lock = database.lock(state, settings=fingerprint)
    with contextlib.closing(database.connect(state / "journal.db")) as connection:
        spool = spools.Spool(state / "spool")
        slurm = slurmaccess.SlurmAccess(spool, slurm_conf=site.slurm_conf, seconds=site.sbatch_seconds)
        journal = entries.Journal(connection)
        instance = database.instance(connection)
        if adopt and (adopt == instance or not re.fullmatch("[0-9a-f]+", adopt)):
            raise errors.UsageError(
                f"--adopt: {adopt!r} is not the name of another intake",
                hint="Its log shows it, and its folder in .work/ has this name.",
            )
        clerk = cycle.Clerk(site, journal, slurm, clocks.SystemClock(), instance=instance)
        asyncio.run(_run(site, clerk, adopt))
    os.close(lock)


async def _run(site: settings.Settings, clerk: cycle.Clerk, adopt: str) -> None:
    if sys.version_info < (3, 12):  # the default from 3.12 on; no threads, because we fork
        watcher = asyncio.PidfdChildWatcher()
        watcher.attach_loop(asyncio.get_running_loop())
        asyncio.set_child_watcher(watcher)
    intake = Intake(site, clerk, adopt=adopt)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    log.info("intake %s watches %s", clerk.instance, site.folder)
    intake.tick()
    systemd.notify("READY=1")
    while not stop.is_set():
        await intake.pause(stop)
        intake.tick()
        systemd.notify("WATCHDOG=1")
    await intake.finish()
