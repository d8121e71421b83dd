"""A job's owner by this host's name service: user name, groups and account for the pods.

A name service may not answer for minutes (a directory server that is down), so each look-up has a thread of
its own. Known users are cached. A job of an unknown user waits for the name service, because a wrong name
would be a wrong namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import grp
import logging
import os
import pwd
import threading

from penstock import errors
from penstock.model import jobs, launches, namespacepattern
from penstock.model.podpolicy import PodPolicy

log = logging.getLogger(__name__)

_GETPWUID_R = ctypes.CDLL(None).getpwuid_r
_ENTRY_BYTES, _TEXT_BYTES = 256, 65536  # struct passwd has 48
SECONDS = 10.0
"""Until a look-up is given up: the cached user is used, or the job waits."""


@dataclasses.dataclass(frozen=True)
class User:
    """A uid's entry in the name service; `groups` is None if its primary group is unknown."""

    name: str
    gid: int
    groups: tuple[int, ...] | None
    home: str = ""


@dataclasses.dataclass(frozen=True)
class Owners:
    known: dict[int, User] = dataclasses.field(default_factory=dict)
    pending: dict[int, asyncio.Future[User | OSError | None]] = dataclasses.field(default_factory=dict)
    """Look-ups in progress, at most one per uid."""
    seconds: float = SECONDS

    async def of_job(self, allocation: jobs.Allocation) -> launches.Owner:
        """The job's owner, with the job's group and account."""
        found = await self.of(allocation.identity.uid, allocation.gid)
        return dataclasses.replace(found, account=allocation.account)

    async def namespace(self, allocation: jobs.Allocation, settings: PodPolicy) -> str:
        """The namespace of the job's pods; empty if there is none, and so no pods."""
        try:
            return namespacepattern.namespace_of(await self.of_job(allocation), settings)
        except errors.UsageError:
            return ""

    async def of(self, uid: int, gid: int | None = None) -> launches.Owner:
        """The owner by uid. An unknown uid has its number as name, and no groups. Raises KubeUnavailable
        while the name service does not answer.
        """
        before, found = self.known.get(uid), await self._look_up(uid)
        if found is not None:
            kept = found.groups if found.groups is not None else (before.groups if before else None)
            self.known[uid] = found = dataclasses.replace(found, groups=kept)
        chosen = found or before
        if chosen is None:
            return launches.Owner(name=str(uid), uid=uid, gid=uid if gid is None else gid, groups=())
        group = chosen.gid if gid is None else gid
        groups = chosen.groups or (chosen.gid,)
        return launches.Owner(name=chosen.name, uid=uid, gid=group, groups=groups, home=chosen.home)

    async def _look_up(self, uid: int) -> User | None:
        """The name service's answer, or the cached user if there is none."""
        question = self.pending.get(uid) or self._ask(uid)
        try:
            found = await asyncio.wait_for(asyncio.shield(question), self.seconds)
        except TimeoutError as error:
            found = error
        if not isinstance(found, OSError):
            return found
        log.warning("the name service does not answer for uid %d", uid)
        if uid not in self.known:
            raise errors.KubeUnavailable(f"the name service does not answer for uid {uid}") from found
        return self.known[uid]

    def _ask(self, uid: int) -> asyncio.Future[User | OSError | None]:
        """Start a look-up in a daemon thread, which may never return."""
        loop = asyncio.get_running_loop()
        question: asyncio.Future[User | OSError | None] = loop.create_future()

        def answer(found: User | OSError | None) -> None:
            self.pending.pop(uid, None)
            if not question.done():
                question.set_result(found)

        def ask() -> None:
            try:
                found: User | OSError | None = look_up(uid)
            except OSError as error:
                found = error
            with contextlib.suppress(RuntimeError):  # the event loop is closed: penstockd has ended
                loop.call_soon_threadsafe(answer, found)

        self.pending[uid] = question
        threading.Thread(target=ask, name=f"uid {uid}", daemon=True).start()
        return question


def look_up(uid: int) -> User | None:
    """The name service's entry; None if it does not know the user, OSError if it fails."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        _require_answer(uid)
        return None
    try:
        grp.getgrgid(entry.pw_gid)
    except KeyError:  # the other groups are not known either
        return User(entry.pw_name, entry.pw_gid, None, entry.pw_dir)
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return User(entry.pw_name, entry.pw_gid, groups, entry.pw_dir)


def _require_answer(uid: int) -> None:
    """Raise OSError if the name service did not answer: ENOENT with a stopped sssd or nslcd. For an unknown
    user getpwuid_r returns 0; Python's pwd raises KeyError for both.
    """
    entry, text = ctypes.create_string_buffer(_ENTRY_BYTES), ctypes.create_string_buffer(_TEXT_BYTES)
    size, found = ctypes.c_size_t(_TEXT_BYTES), ctypes.c_void_p()
    error = _GETPWUID_R(ctypes.c_uint(uid), entry, text, size, ctypes.byref(found))
    if error:
        raise OSError(error, os.strerror(error))
