"""Claimed files, whose names in .work/<instance>/ suffice to recover them if the journal is lost."""

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
_UNSEEN = listing.Stamp(inode=0, size=-1, mtime_ns=0)  # matches no file: the file has to settle first


@dataclasses.dataclass
class Claim:
    """The next action for a claimed file, and when it is due.

    check: inspect and submit; trace: read what an earlier submission left; ask: search Slurm for the token;
    busy: a submission or question is under way; file: the verdict is known, move the file.
    """

    token: str
    name: str
    uid: int
    folder_uid: int | None = None
    phase: Phase = "check"
    stamp: listing.Stamp | None = None
    cut_short: bool = False
    mode: int = 0
    entry: entries.Entry | None = None
    due: float = 0.0
    tries: int = 0
    missed: float = math.inf
    """Since when Slurm has answered every question and not known the token."""
    asked: float = 0.0
    """Time of the last question: the age of its answer, whenever that is read."""
    words: str = ""

    @property
    def work_name(self) -> str:
        owner = "-" if self.folder_uid is None else str(self.folder_uid)
        kept = self.name if len(os.fsencode(self.name)) <= filenames.LONGEST else "overlong"
        return f"{self.token}.{owner}{_CUT_SHORT if self.cut_short else ''}.{kept}"

    def retry_later(self, now: float, *, least: float = 0.5) -> None:
        """Exponential backoff with jitter."""
        wait = min(least * 2 ** min(self.tries, 10), LONGEST_WAIT)
        self.due = now + wait * random.uniform(0.8, 1.2)  # noqa: S311  # spreads work, hides nothing
        self.tries += 1


def take(
    folder: dropfolder.Folder, info: listing.FileInfo, *, instance: str, cut_short: bool
) -> Claim | None:
    """Claim a file by one rename, which only one intake can win; None if the file is gone.

    The token begins with the intake's name, which tells others who has claimed the file.
    """
    token = instance + secrets.token_hex(16)[len(instance) :]
    claim = Claim(token, info.name, info.uid, stamp=info.stamp, cut_short=cut_short)
    with contextlib.suppress(errors.NasUnavailable), _directory_of(folder, info) as source:
        if info.folder:
            claim.folder_uid = os.fstat(source).st_uid
        target = renames.Spot(folder.work, claim.work_name)
        return claim if renames.move(renames.Spot(source, claim.name), target) else None
    return None  # the user's folder was removed or replaced by a link


def _directory_of(
    folder: dropfolder.Folder, info: listing.FileInfo
) -> contextlib.AbstractContextManager[int]:
    if info.folder:
        return dropfolder.inside(folder.submit, info.folder)
    return contextlib.nullcontext(folder.submit)


def drop_marker(folder: dropfolder.Folder, info: listing.FileInfo) -> None:
    """Remove the <name>.done of a claimed file if it belongs to the same user."""
    with contextlib.suppress(errors.NasUnavailable), _directory_of(folder, info) as directory:
        spot = renames.Spot(directory, info.name + wellknown.DONE_SUFFIX)
        there = renames.look(spot)
        if there is not None and there.st_uid == info.uid and stat.S_ISREG(there.st_mode):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(spot.name, dir_fd=directory)


def existing(folder: dropfolder.Folder) -> tuple[list[Claim], dict[str, str]]:
    """All claims in .work/<instance>/, and the errors of files that cannot be read, by token."""
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


def other_instances(folder: dropfolder.Folder, instance: str) -> dict[str, int]:
    """Claimed files of other intakes, counted by instance."""
    found: dict[str, int] = {}
    with dropfolder.inside(folder.root, wellknown.DROP_WORK) as work:
        for entry in os.scandir(work):
            if entry.name != instance and entry.is_dir(follow_symlinks=False):
                with dropfolder.inside(work, entry.name) as other:
                    found[entry.name] = sum(1 for _ in os.scandir(other))
    return {name: count for name, count in found.items() if count}


def adopt(folder: dropfolder.Folder, instance: str) -> int:
    """Take over the claims of an intake that is gone for good; returns their number."""
    count = 0
    with (
        dropfolder.inside(folder.root, wellknown.DROP_WORK) as work,
        dropfolder.inside(work, instance) as other,
    ):
        for entry in list(os.scandir(other)):
            count += renames.move(renames.Spot(other, entry.name), renames.Spot(folder.work, entry.name))
    return count
