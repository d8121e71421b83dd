"""Keeps the inbox's text up to date: on this host always, on the NAS for users of other hosts when it can."""

from __future__ import annotations

import datetime
import logging
import os
import socket
import time
from pathlib import Path

import msgspec

from penstock import wellknown
from penstock.intake import cycle, status
from penstock.nas import atomic

log = logging.getLogger(__name__)
LOCAL_SECONDS, NAS_SECONDS = 1.0, 3.0
HEARTBEAT = 5.0
SHARE = 20  # with many files, making the text may take a twentieth of the time


class Reporter:
    """Writes what has changed, seldom enough not to be a load."""

    def __init__(self, local: Path, shared: Path) -> None:
        self.local, self.shared = local, shared
        self._written = {local: 0.0, shared: 0.0}
        self._cost = 0.0
        self._last: dict[Path, tuple[object, ...]] = {}

    def report(self, desk: cycle.Clerk, problem: str, now: float) -> None:
        """Write the inbox where it is due; the NAS's only while nothing is wrong with it."""
        due = [
            path
            for path, gap in ((self.local, LOCAL_SECONDS), (self.shared, NAS_SECONDS))
            if self._due(path, gap, now)
        ]
        if problem and self.shared in due:
            due.remove(self.shared)
        if not due:
            return
        began = desk.clock.now()
        inbox = look(desk, problem)
        self._cost = desk.clock.now() - began
        content = (inbox.problem, inbox.waiting, inbox.done)
        for path in due:
            self._write(path, inbox, content, now)

    def _due(self, path: Path, gap: float, now: float) -> bool:
        return now - self._written[path] >= max(gap, SHARE * self._cost)

    def _write(self, path: Path, inbox: status.Inbox, content: tuple[object, ...], now: float) -> None:
        unchanged = self._last.get(path) == content
        if unchanged and (path == self.shared or now - self._written[path] < HEARTBEAT):
            return
        self._written[path] = now
        try:
            atomic.write(path, msgspec.json.encode(inbox), durable=False)
        except OSError as error:
            log.warning("cannot write %s: %s", path, error)
        else:
            self._last[path] = content


def look(desk: cycle.Clerk, problem: str) -> status.Inbox:
    """Every file there is, as it is now."""
    now = desk.clock.now()
    waiting = [status.of_claim(claim) for claim in desk.claims.values()]
    for watched in desk.tracker.watched.values():
        waiting.append(status.of_watched(watched, ready=desk.tracker.is_ready(watched, now)))
    waiting += map(status.of_folder, desk.folders)
    done = tuple(status.of_entry(entry) for entry in desk.journal.latest(status.LATEST))
    at = datetime.datetime.fromtimestamp(int(time.time()), datetime.UTC)
    return status.Inbox(at, socket.gethostname(), problem, tuple(waiting), done, os.getpid())


def shared_path(folder: str) -> Path:
    return Path(folder) / wellknown.DROP_INDEX
