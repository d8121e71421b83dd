"""A claimed file is looked at once, through one open descriptor: whose it is, whether it may be a job's, and
its bytes. What is refused is refused here, in words; what is let through is a copy that nobody can change.
"""

from __future__ import annotations

import grp
import os
import stat

import msgspec

from penstock import errors
from penstock.intake import filenames
from penstock.nas import asuser, listing, renames

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)


class Script(msgspec.Struct, frozen=True):
    """A file as it was at one moment, and whose it is."""

    data: bytes
    user: asuser.User
    mode: int
    sign: listing.Sign


class Refusal(msgspec.Struct, frozen=True):
    """Why a file becomes no job, what its owner can do, and whose it is as far as that is known."""

    reason: str
    advice: str
    uid: int
    mode: int = 0
    passing: bool = False
    """The host may only be unable to tell at the moment: not to be held against the file at once."""


class Unsettled(msgspec.Struct, frozen=True):
    """It is not as it was when it had settled: somebody still writes."""

    sign: listing.Sign


class Limits(msgspec.Struct, frozen=True):
    """What a site allows."""

    largest_bytes: int
    group_writable: bool = False


Found = Script | Refusal | Unsettled | None


def inspect(spot: renames.Spot, *, name: str, limits: Limits, expected: listing.Sign | None) -> Found:
    """Look at a claimed file; None when it is gone."""
    there = renames.look(spot)
    if there is None:
        return None
    if not stat.S_ISREG(there.st_mode):
        kind = next((words for test, words in _KINDS if test(there.st_mode)), "no regular file")
        return Refusal(f"it is {kind}", "Copy the job file itself.", there.st_uid)
    try:
        descriptor = os.open(spot.name, _OPEN, dir_fd=spot.directory)
    except FileNotFoundError:
        return None
    try:
        return _inspect_open(descriptor, name, limits, expected)
    finally:
        os.close(descriptor)


def _inspect_open(descriptor: int, name: str, limits: Limits, expected: listing.Sign | None) -> Found:
    found = os.fstat(descriptor)
    refused = _refusal(found, name, limits)
    if refused is not None:
        return refused
    try:
        user = asuser.User.of(found.st_uid)
    except errors.UsageError:
        reason = f"its owner, number {found.st_uid}, is no user of this host"
        return _no(found, reason, "Ask the operators.", passing=True)
    if found.st_mode & stat.S_IWGRP and not limits.group_writable:
        private = _is_private(found.st_gid, user)
        if not private:
            advice = "chmod g-w the file and copy it again."
            return _no(found, "others in its group may write to it", advice, passing=private is None)
    sign = listing.Sign.of(found)
    if expected is not None and sign != expected:
        return Unsettled(sign)
    data = _read(descriptor, limits.largest_bytes)
    after = listing.Sign.of(os.fstat(descriptor))
    if after != sign or len(data) != sign.size:
        return Unsettled(after)
    return Script(data, user, stat.S_IMODE(found.st_mode), sign)


def _refusal(found: os.stat_result, name: str, limits: Limits) -> Refusal | None:
    """What the file's own numbers say against it."""
    trouble = filenames.problem(name)
    if not stat.S_ISREG(found.st_mode):
        return _no(found, "it is no regular file", "Copy the job file itself.")
    if trouble:
        return _no(found, trouble, "Give it a plain name and copy it again.")
    if found.st_uid == 0:
        return _no(found, "it belongs to root, and root submits no jobs", "Copy it as yourself.")
    if found.st_nlink != 1:
        return _no(found, "it has a second name (a hard link)", "Copy the file instead of linking it.")
    if found.st_mode & stat.S_IWOTH:
        return _no(found, "everybody may write to it", "chmod o-w the file and copy it again.")
    if found.st_size > limits.largest_bytes:
        size, most = found.st_size / 2**20, limits.largest_bytes / 2**20
        reason = f"it has {size:.1f} MiB; a job file has at most {most:g} MiB"
        return _no(found, reason, "Keep data in files of its own, and name them in the script.")
    return None


def _no(found: os.stat_result, reason: str, advice: str, *, passing: bool = False) -> Refusal:
    return Refusal(reason, advice, found.st_uid, stat.S_IMODE(found.st_mode), passing)


def _is_private(gid: int, user: asuser.User) -> bool | None:
    """Whether the group is the user's own, with nobody else in it, as many systems make one for each user;
    None when the host does not know the group.
    """
    if gid != user.gid:
        return False
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return None
    return group.gr_name == user.name and set(group.gr_mem) <= {user.name}


def _read(descriptor: int, most: int) -> bytes:
    """The whole content, or one byte more than is allowed."""
    parts: list[bytes] = []
    left = most + 1
    while left and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
