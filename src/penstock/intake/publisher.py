"""Writes the inbox file: always on this host, and on the NAS, for users of other hosts, while that works."""

from __future__ import annotations

import datetime
import logging
import os
import socket
import time
from pathlib import Path

import msgspec

from penstock.intake import cycle, status
from penstock.nas import atomic

log = logging.getLogger(__name__)
LOCAL_SECONDS, NAS_SECONDS = 1.0, 3.0
HEARTBEAT = 5.0
SHARE = 20  # with many files, rendering may take a twentieth of the time


class Reporter:
    def __init__(self, local: Path, shared: Path) -> None:
        self.local, self.shared = local, shared
        self._written = {local: 0.0, shared: 0.0}
        self._cost = 0.0
        self._last: dict[Path, tuple[object, ...]] = {}

    def report(self, clerk: cycle.Clerk, problem: str, now: float) -> None:
        """Write the files that are due; that on the NAS only while the NAS has no problem."""
        due = [self.local] if self._is_due(self.local, LOCAL_SECONDS, now) else []
        if not problem and self._is_due(self.shared, NAS_SECONDS, now):
            due.append(self.shared)
        if not due:
            return
        began = clerk.clock.now()
        inbox = snapshot(clerk, problem)
        self._cost = clerk.clock.now() - began
        for path in due:
            self._write(path, inbox, now)

    def _is_due(self, path: Path, gap: float, now: float) -> bool:
        return now - self._written[path] >= max(gap, SHARE * self._cost)

    def _write(self, path: Path, inbox: status.Inbox, now: float) -> None:
        content = (inbox.problem, inbox.waiting, inbox.done)
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


def snapshot(clerk: cycle.Clerk, problem: str) -> status.Inbox:
    now = clerk.clock.now()
    waiting = [status.of_claim(claim) for claim in clerk.claims.values()]
    for watched in clerk.tracker.watched.values():
        waiting.append(status.of_watched(watched, ready=clerk.tracker.is_ready(watched, now)))
    waiting += map(status.of_folder, clerk.folders)
    done = tuple(status.of_entry(entry) for entry in clerk.journal.latest(status.LATEST))
    at = datetime.datetime.fromtimestamp(int(time.time()), datetime.UTC)
    return status.Inbox(at, socket.gethostname(), problem, tuple(waiting), done, os.getpid())
