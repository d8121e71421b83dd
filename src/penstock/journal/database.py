"""The journal's file: SQLite in WAL mode, for one process at a time.

WAL needs shared memory on one host, so a network file system is refused. A commit survives a crash of the
process at once, and a power cut after the next checkpoint; what a power cut undoes is found again in Slurm,
because the name of the claimed file also holds the token.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from pathlib import Path

from penstock import errors, mounts, presence, wellknown

SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (
    token TEXT PRIMARY KEY,
    name BLOB NOT NULL,
    uid INTEGER NOT NULL,
    state TEXT NOT NULL,
    job_id TEXT NOT NULL DEFAULT '',
    sha256 TEXT NOT NULL DEFAULT '',
    words TEXT NOT NULL DEFAULT '',
    letter TEXT NOT NULL DEFAULT '',
    day TEXT NOT NULL DEFAULT '',
    target BLOB NOT NULL DEFAULT x'',
    began REAL NOT NULL,
    changed REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entries_by_state ON entries (state, changed);
"""
VERSION = 1


def connect(path: Path) -> sqlite3.Connection:
    """Open or create the journal. Raises UsageError or JournalError if it cannot be used."""
    kind = mounts.kind_of(path.parent)
    if mounts.is_network(kind):
        raise errors.UsageError(
            f"the journal cannot be on a network file system: {path.parent} is {kind}",
            hint="Set `state` to a folder on a local disk.",
        )
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # only root reads it
        connection = sqlite3.connect(path, isolation_level=None, timeout=10.0)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        _upgrade(connection, path)
    except (sqlite3.Error, OSError) as error:
        raise errors.JournalError(
            f"the journal {path} cannot be used: {error}",
            hint="Move it away to start a new one: files already claimed are looked up in Slurm.",
        ) from error
    return connection


def _upgrade(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise errors.JournalError(
            f"the journal {path} was written by a newer release of Penstock (schema {version})"
        )
    connection.executescript(SCHEMA)
    connection.execute(f"PRAGMA user_version={VERSION}")


def fact(connection: sqlite3.Connection, name: str, default: str = "") -> str:
    """A stored value; if there is none, `default` is stored and returned."""
    row = connection.execute("SELECT value FROM facts WHERE name=?", (name,)).fetchone()
    if row is None and default:
        connection.execute("INSERT INTO facts VALUES (?, ?)", (name, default))
    return str(row[0]) if row else default


def instance(connection: sqlite3.Connection) -> str:
    """This intake's name among those on the same NAS: generated once, kept with the journal."""
    return fact(connection, "instance", secrets.token_hex(6))


def lock(folder: Path, *, settings: str = "") -> int:
    """Lock the state folder until the process ends; the lock file holds the settings' fingerprint."""
    try:
        return presence.hold(folder / wellknown.INTAKE_LOCK, settings)
    except BlockingIOError:
        raise errors.UsageError(
            f"another intake uses {folder}", hint="Stop it: only one intake may use a `state` folder."
        ) from None
