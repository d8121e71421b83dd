"""Inspects a claimed file once, through one open descriptor: owner, mode, kind and content. The content that
passes is a copy in memory, which nobody can change afterwards.
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
    """A consistent copy of a file, and its owner."""

    data: bytes
    user: asuser.User
    mode: int
    stamp: listing.Stamp


class Refusal(msgspec.Struct, frozen=True):
    """Why a file is refused, what its owner can do, and the owner as far as known."""

    reason: str
    advice: str
    uid: int
    mode: int = 0
    temporary: bool = False
    """The host may be unable to tell at the moment: refused only after a grace period."""
    details: tuple[str, ...] = ()


class Unsettled(msgspec.Struct, frozen=True):
    """The file has changed since it had settled: somebody still writes."""

    stamp: listing.Stamp


class Limits(msgspec.Struct, frozen=True):
    largest_bytes: int
    group_writable: bool = False


Found = Script | Refusal | Unsettled | None


def inspect(spot: renames.Spot, *, name: str, limits: Limits, expected: listing.Stamp | None) -> Found:
    there = renames.look(spot)
    if there is None:
        return None
    if not stat.S_ISREG(there.st_mode):
        kind = next((words for test, words in _KINDS if test(there.st_mode)), "not a regular file")
        return Refusal(f"it is {kind}", "Copy the job file itself.", there.st_uid)
    try:
        descriptor = os.open(spot.name, _OPEN, dir_fd=spot.directory)
    except FileNotFoundError:
        return None
    try:
        return _inspect_open(descriptor, name, limits, expected)
    finally:
        os.close(descriptor)


def _inspect_open(descriptor: int, name: str, limits: Limits, expected: listing.Stamp | None) -> Found:
    found = os.fstat(descriptor)
    refused = _refusal(found, name, limits)
    if refused is not None:
        return refused
    try:
        user = asuser.User.of(found.st_uid)
    except errors.UsageError:
        reason = f"its owner, uid {found.st_uid}, is not a user of this host"
        return _refuse(found, reason, "Ask the administrators.", temporary=True)
    if found.st_mode & stat.S_IWGRP and not limits.group_writable:
        private = _is_private(found.st_gid, user)
        if not private:
            advice = "Run `chmod g-w` on the file and copy it again."
            return _refuse(found, "others in its group may write to it", advice, temporary=private is None)
    stamp = listing.Stamp.of(found)
    if expected is not None and stamp != expected:
        return Unsettled(stamp)
    data = _read(descriptor, limits.largest_bytes)
    after = listing.Stamp.of(os.fstat(descriptor))
    if after != stamp or len(data) != stamp.size:
        return Unsettled(after)
    return Script(data, user, stat.S_IMODE(found.st_mode), stamp)


def _refusal(found: os.stat_result, name: str, limits: Limits) -> Refusal | None:
    """Checks that need only the name and stat(2)."""
    if not stat.S_ISREG(found.st_mode):
        return _refuse(found, "it is not a regular file", "Copy the job file itself.")
    if problem := filenames.problem(name):
        return _refuse(found, problem, "Give it a plain name and copy it again.")
    if found.st_uid == 0:
        return _refuse(found, "it belongs to root, and root may not submit jobs", "Copy it as yourself.")
    if found.st_nlink != 1:
        return _refuse(found, "it has a second name (a hard link)", "Copy the file instead of linking it.")
    if found.st_mode & stat.S_IWOTH:
        advice = "Run `chmod o-w` on the file and copy it again."
        return _refuse(found, "everybody may write to it", advice)
    if found.st_size > limits.largest_bytes:
        size, most = found.st_size / 2**20, limits.largest_bytes / 2**20
        reason = f"it has {size:.1f} MiB; a job file may have at most {most:g} MiB"
        return _refuse(found, reason, "Keep data in separate files and name them in the script.")
    return None


def _refuse(found: os.stat_result, reason: str, advice: str, *, temporary: bool = False) -> Refusal:
    return Refusal(reason, advice, found.st_uid, stat.S_IMODE(found.st_mode), temporary)


def _is_private(gid: int, user: asuser.User) -> bool | None:
    """Whether it is the user's private group with no other member; None if the host does not know it."""
    if gid != user.gid:
        return False
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return None
    return group.gr_name == user.name and set(group.gr_mem) <= {user.name}


def _read(descriptor: int, most: int) -> bytes:
    """The whole content, at most one byte more than allowed."""
    parts: list[bytes] = []
    left = most + 1
    while left and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
