"""Users of this machine."""

from __future__ import annotations

import os
import pwd
from typing import TypedDict

from penstock import errors
from penstock_lab import files


class ProcessIdentity(TypedDict, total=False):
    """Arguments of subprocess that set a program's user."""

    user: int
    group: int
    extra_groups: list[int]


def entry_of(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise errors.UsageError(f"there is no user {name} on this machine") from None


def current_name() -> str:
    """The current user's name; empty if the uid has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""


def owner_of(name: str) -> files.Owner:
    """Uid and gid of a user."""
    entry = entry_of(name)
    return files.Owner(entry.pw_uid, entry.pw_gid)


def identity(user: str | None) -> ProcessIdentity:
    """Run as `user` with exactly that user's groups; as the current user if `user` is root or None."""
    if user in (None, "root"):
        return {}
    entry = entry_of(str(user))
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}
