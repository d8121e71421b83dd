"""A file that this intake has taken: its name in .work/<instance>/ says by itself which token and name it
has, so that it is understood even when the journal is lost.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import random
import re
import secrets
import stat
from typing import Literal

from penstock import errors, wellknown
from penstock.intake import filenames
from penstock.journal import entries
from penstock.nas import dropfolder, listing, renames

Phase = Literal["check", "trace", "ask", "busy", "file"]
_CUT_SHORT = "!"
_WORK_NAME = re.compile(rf"([0-9a-f]{{32}})\.(\d+|-)({_CUT_SHORT}?)\.(.*)", re.DOTALL)
LONGEST_WAIT = 60.0
_UNSEEN = listing.Sign(inode=0, size=-1, mtime_ns=0)  # no file's: nobody knows for how long it is as it is


@dataclasses.dataclass
class Claim:
    """What is to be done next with a claimed file, and when.

    check: look at it and submit it; trace: see what an earlier submission has left; ask: look for it in
    Slurm; busy: something is under way; file: the verdict is known, move it.
    """

    token: str
    name: str
    uid: int
    folder_uid: int | None = None
    phase: Phase = "check"
    sign: listing.Sign | None = None
    cut_short: bool = False
    mode: int = 0
    entry: entries.Entry | None = None
    due: float = 0.0
    tries: int = 0
    missed: float = math.inf
    """Since when Slurm, asked again and again and always able to answer, has not known it."""
    asked: float = 0.0
    """When it was last asked: that is how old its answer is, whenever we come to read it."""
    words: str = ""

    @property
    def work_name(self) -> str:
        owner = "-" if self.folder_uid is None else str(self.folder_uid)
        kept = self.name if len(os.fsencode(self.name)) <= filenames.LONGEST else "overlong"
        return f"{self.token}.{owner}{_CUT_SHORT if self.cut_short else ''}.{kept}"

    def later(self, now: float, *, least: float = 0.5) -> None:
        """Try again after a while that grows, a little different for each."""
        wait = min(least * 2 ** min(self.tries, 10), LONGEST_WAIT)
        self.due = now + wait * random.uniform(0.8, 1.2)  # noqa: S311  # spreads work, hides nothing
        self.tries += 1


def take(folder: dropfolder.Folder, sight: listing.Sight, *, instance: str, cut_short: bool) -> Claim | None:
    """Claim a file by one rename, which only one of many intakes can win; None when it is gone.

    The token begins with the intake's name: whoever finds the file later knows who has taken it.
    """
    token = instance + secrets.token_hex(16)[len(instance) :]
    claim = Claim(token, sight.name, sight.uid, sign=sight.sign, cut_short=cut_short)
    if not sight.folder:
        return claim if _move(folder.submit, folder, claim) else None
    with contextlib.suppress(errors.NasUnavailable), dropfolder.inside(folder.submit, sight.folder) as inner:
        claim.folder_uid = os.fstat(inner).st_uid
        return claim if _move(inner, folder, claim) else None
    return None  # its folder is gone, or its owner has put a link in its place


def _move(source: int, folder: dropfolder.Folder, claim: Claim) -> bool:
    return renames.move(renames.Spot(source, claim.name), renames.Spot(folder.work, claim.work_name))


def drop_marker(folder: dropfolder.Folder, sight: listing.Sight) -> None:
    """Remove the <name>.done of a file that was taken, if it is the same user's."""
    if not sight.folder:
        _unlink_own(renames.Spot(folder.submit, sight.name + wellknown.DONE_SUFFIX), sight.uid)
        return
    with contextlib.suppress(errors.NasUnavailable), dropfolder.inside(folder.submit, sight.folder) as inner:
        _unlink_own(renames.Spot(inner, sight.name + wellknown.DONE_SUFFIX), sight.uid)


def _unlink_own(spot: renames.Spot, uid: int) -> None:
    there = renames.look(spot)
    if there is not None and there.st_uid == uid and stat.S_ISREG(there.st_mode):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(spot.name, dir_fd=spot.directory)


def left(folder: dropfolder.Folder) -> tuple[list[Claim], dict[str, str]]:
    """Everything in our part of .work/; and why files cannot be looked at now, by their tokens."""
    found, broken = [], {}
    for entry in os.scandir(folder.work):
        match = _WORK_NAME.fullmatch(entry.name)
        if match is None:
            continue
        owner = None if match[2] == "-" else int(match[2])
        try:
            uid = entry.stat(follow_symlinks=False).st_uid
        except OSError as error:
            broken[match[1]] = error.strerror or str(error)
            continue
        found.append(Claim(match[1], match[4], uid, owner, "trace", _UNSEEN, cut_short=bool(match[3])))
    return found, broken


def strangers(folder: dropfolder.Folder, instance: str) -> dict[str, int]:
    """How many files each of the other intakes has taken and not yet put away."""
    found: dict[str, int] = {}
    with dropfolder.inside(folder.root, wellknown.DROP_WORK) as work:
        for entry in os.scandir(work):
            if entry.name != instance and entry.is_dir(follow_symlinks=False):
                with dropfolder.inside(work, entry.name) as other:
                    found[entry.name] = sum(1 for _ in os.scandir(other))
    return {name: count for name, count in found.items() if count}


def adopt(folder: dropfolder.Folder, stranger: str) -> int:
    """Take over what an intake that is gone for good has left; how many files that were."""
    count = 0
    with (
        dropfolder.inside(folder.root, wellknown.DROP_WORK) as work,
        dropfolder.inside(work, stranger) as other,
    ):
        for entry in list(os.scandir(other)):
            count += renames.move(renames.Spot(other, entry.name), renames.Spot(folder.work, entry.name))
    return count
