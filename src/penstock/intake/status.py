"""Where every file is: the text that `penstock inbox` shows, written beside the folder and on this host.

docs/reference/json.md describes it.
"""

from __future__ import annotations

import datetime
import pwd

import msgspec

from penstock import wellknown
from penstock.intake import claims, completeness, filenames
from penstock.journal import entries
from penstock.nas import listing

LATEST = 200
_FOLDER = "a folder: only files become jobs, put them into submit/ itself"
_WORDS = {
    "check": "taken: about to be submitted",
    "trace": "taken: an earlier attempt is looked into",
    "ask": "taken: looking for it in Slurm, so that it is not submitted twice",
    "busy": "taken: being submitted",
    "file": "decided: about to be moved",
}


class Item(msgspec.Struct, frozen=True):
    """One file."""

    name: str
    user: str
    uid: int
    state: str
    words: str = ""
    job: str = ""
    path: str = ""
    """Where the file is now, below the drop folder; empty while it waits."""
    at: datetime.datetime | None = None
    """When it got there; None when that is not known."""


class Inbox(msgspec.Struct, frozen=True):
    """Every file that waits, and the latest that do not."""

    at: datetime.datetime
    host: str
    problem: str
    waiting: tuple[Item, ...]
    done: tuple[Item, ...]
    pid: int = 0
    """Of the intake that wrote it, on that host."""
    version: int = wellknown.JSON_VERSION


def moment(seconds: float) -> datetime.datetime | None:
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC) if seconds else None


def of_folder(folder: listing.Left) -> Item:
    return Item(filenames.shown(folder.name), user_of(folder.uid), folder.uid, "left", _FOLDER)


def of_watched(watched: completeness.Watched, *, ready: bool) -> Item:
    sight = watched.sight
    words = "waits for its turn" if ready else "waits until it stops changing"
    return Item(filenames.shown(sight.name), user_of(sight.uid), sight.uid, "arriving", words)


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
    """The user's name, asked once; the number while nobody knows it, which may be over soon."""
    if uid not in _known:
        try:
            _known[uid] = pwd.getpwuid(uid).pw_name
        except KeyError:
            return str(uid)
    return _known[uid]
