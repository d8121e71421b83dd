"""The journal's entries: one for each file, from just before sbatch until the file is moved away."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable

import msgspec

from penstock import errors

SUBMITTING = "submitting"  # sbatch may have run: search Slurm for the token before a retry
WAITING = "waiting"  # Slurm cannot accept it now: retry later
ACCEPTED = "accepted"  # the job id is known; the file is to be moved to processed/
REFUSED = "refused"  # no job; the file is to be moved to failed/
PROCESSED = "processed"  # done
FAILED = "failed"  # done
OPEN = (SUBMITTING, WAITING, ACCEPTED, REFUSED)
_COLUMNS = "token, name, uid, state, job_id, sha256, words, letter, day, target, began, changed"


class Entry(msgspec.Struct, frozen=True):
    """One file; `day` and `target` tell where it was moved."""

    token: str
    name: bytes
    uid: int
    state: str
    job_id: str = ""
    sha256: str = ""
    words: str = ""
    letter: str = ""
    day: str = ""
    target: bytes = b""
    began: float = 0.0
    changed: float = 0.0


class Journal:
    """Every call is one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def put(self, entry: Entry) -> Entry:
        """Insert or replace the entry, with the time of the change."""
        now = time.time()
        stamped = msgspec.structs.replace(entry, began=entry.began or now, changed=now)
        values = tuple(getattr(stamped, name) for name in Entry.__struct_fields__)
        marks = ", ".join("?" * len(values))
        try:
            self.connection.execute(f"INSERT OR REPLACE INTO entries ({_COLUMNS}) VALUES ({marks})", values)  # noqa: S608  # fixed words only
        except sqlite3.Error as error:
            raise errors.JournalError(f"the journal cannot be written: {error}") from error
        return stamped

    def get(self, token: str) -> Entry | None:
        return next(iter(self._select("WHERE token=?", (token,))), None)

    def open(self) -> list[Entry]:
        marks = ", ".join("?" * len(OPEN))
        return self._select(f"WHERE state IN ({marks}) ORDER BY began", OPEN)

    def latest(self, most: int) -> list[Entry]:
        """The entries done last, the newest first."""
        found = [
            entry
            for state in (PROCESSED, FAILED)  # two queries, because each can use the index
            for entry in self._select("WHERE state=? ORDER BY changed DESC LIMIT ?", (state, most))
        ]
        return sorted(found, key=lambda entry: -entry.changed)[:most]

    def forget(self, *, before: float) -> None:
        self.connection.execute(
            "DELETE FROM entries WHERE state IN (?, ?) AND changed < ?", (PROCESSED, FAILED, before)
        )

    def _select(self, where: str, values: Iterable[object]) -> list[Entry]:
        rows = self.connection.execute(f"SELECT {_COLUMNS} FROM entries {where}", tuple(values))  # noqa: S608  # fixed words only
        return [Entry(*row) for row in rows]
