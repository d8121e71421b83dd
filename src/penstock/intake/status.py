"""The inbox file, which `penstock inbox` shows: the state of every dropped file (docs/reference/json.md)."""

from __future__ import annotations

import datetime
import pwd

import msgspec

from penstock import wellknown
from penstock.intake import claims, completeness, filenames
from penstock.journal import entries
from penstock.nas import listing

LATEST = 200
_FOLDER = "a folder: only files become jobs; copy them directly into submit/"
_WORDS = {
    "check": "about to be submitted",
    "trace": "reading the result of an earlier submission",
    "ask": "searching Slurm for it, so that it is not submitted twice",
    "busy": "being submitted",
    "file": "about to be moved to processed/ or failed/",
}


class Item(msgspec.Struct, frozen=True):
    name: str
    user: str
    uid: int
    state: str
    words: str = ""
    job: str = ""
    path: str = ""
    """Path below the drop folder; empty while it waits."""
    at: datetime.datetime | None = None
    """Since when it is there; None if unknown."""


class Inbox(msgspec.Struct, frozen=True):
    """All files that wait, and the latest that were submitted or refused."""

    at: datetime.datetime
    host: str
    problem: str
    waiting: tuple[Item, ...]
    done: tuple[Item, ...]
    pid: int = 0
    """Of the intake, on that host."""
    version: int = wellknown.JSON_VERSION


def moment(seconds: float) -> datetime.datetime | None:
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC) if seconds else None


def of_folder(folder: listing.Subfolder) -> Item:
    return Item(filenames.shown(folder.name), user_of(folder.uid), folder.uid, "left", _FOLDER)


def of_watched(watched: completeness.Watched, *, ready: bool) -> Item:
    info = watched.info
    words = "waiting for its turn" if ready else "waiting until it stops changing"
    return Item(filenames.shown(info.name), user_of(info.uid), info.uid, "arriving", words)


def of_claim(claim: claims.Claim) -> Item:
    words = claim.words or _WORDS[claim.phase]
    began = claim.entry.began if claim.entry else 0.0
    return Item(filenames.shown(claim.name), user_of(claim.uid), claim.uid, "taken", words, at=moment(began))


def of_entry(entry: entries.Entry) -> Item:
    name = filenames.shown(entry.name.decode(errors="replace"))
    target = filenames.shown(entry.target.decode(errors="replace"))
    path = f"{entry.state}/{entry.day}/{target}" if target else ""
    at = moment(entry.changed)
    return Item(name, user_of(entry.uid), entry.uid, entry.state, entry.words, entry.job_id, path, at)


_known: dict[int, str] = {}


def user_of(uid: int) -> str:
    """The user's name, cached; the uid while the host does not know it."""
    if uid not in _known:
        try:
            _known[uid] = pwd.getpwuid(uid).pw_name
        except KeyError:
            return str(uid)
    return _known[uid]
