"""The user behind a job, as this host knows it: name, groups and account for the pods.

A name service may not answer for minutes (a directory server that is away), so it is asked in a thread of its
own: everybody else's jobs go on. Who was known stays known; whoever was not waits until it can be asked,
because another name would be another namespace.
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
"""How long one look-up may take before what was known counts, or the question is put off."""


@dataclasses.dataclass(frozen=True)
class User:
    """What the host says of a uid; `groups` is None when it does not even know its first group."""

    name: str
    gid: int
    groups: tuple[int, ...] | None
    home: str = ""


@dataclasses.dataclass(frozen=True)
class Owners:
    """Looks users up."""

    known: dict[int, User] = dataclasses.field(default_factory=dict)
    asked: dict[int, asyncio.Future[User | OSError | None]] = dataclasses.field(default_factory=dict)
    """Questions that are not answered: no second thread waits for the same."""
    seconds: float = SECONDS

    async def of_job(self, allocation: jobs.Allocation) -> launches.Owner:
        """The job's user, in the group that the job was submitted with, charged to the job's account."""
        found = await self.of(allocation.identity.uid, allocation.gid)
        return dataclasses.replace(found, account=allocation.account)

    async def namespace(self, allocation: jobs.Allocation, settings: PodPolicy) -> str:
        """Where the job's pods are; nothing when there is no place for them, and so no pods."""
        try:
            return namespacepattern.namespace_of(await self.of_job(allocation), settings)
        except errors.UsageError:
            return ""

    async def of(self, uid: int, gid: int | None = None) -> launches.Owner:
        """A uid that the host has never known keeps its number and has no groups; KubeUnavailable while
        nobody tells whether it knows it.
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
        """What the name service says now, or what is known if it does not answer."""
        question = self.asked.get(uid) or self._ask(uid)
        try:
            found = await asyncio.wait_for(asyncio.shield(question), self.seconds)
        except TimeoutError as error:
            found = error
        if not isinstance(found, OSError):
            return found
        log.warning("the name service does not tell who uid %d is", uid)
        if uid not in self.known:
            raise errors.KubeUnavailable(f"the name service does not tell who uid {uid} is") from found
        return self.known[uid]

    def _ask(self, uid: int) -> asyncio.Future[User | OSError | None]:
        """In a thread that nobody waits for at the end: it may never come back."""
        loop = asyncio.get_running_loop()
        question: asyncio.Future[User | OSError | None] = loop.create_future()

        def answer(found: User | OSError | None) -> None:
            self.asked.pop(uid, None)
            if not question.done():
                question.set_result(found)

        def ask() -> None:
            found: User | OSError | None
            try:
                found = look_up(uid)
            except OSError as error:
                found = error
            with contextlib.suppress(RuntimeError):  # penstockd has ended meanwhile
                loop.call_soon_threadsafe(answer, found)

        self.asked[uid] = question
        threading.Thread(target=ask, name=f"uid {uid}", daemon=True).start()
        return question


def look_up(uid: int) -> User | None:
    """The name service's word; None when it does not know the user, OSError when it fails."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        _require_answer(uid)
        return None
    try:
        grp.getgrgid(entry.pw_gid)
    except KeyError:  # then it has not told the others either
        return User(entry.pw_name, entry.pw_gid, None, entry.pw_dir)
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return User(entry.pw_name, entry.pw_gid, groups, entry.pw_dir)


def _require_answer(uid: int) -> None:
    """OSError when the name service could not be asked: ENOENT with an sssd or nslcd that is stopped. For a
    user that it does not know getpwuid_r returns 0; Python's pwd does not tell the two apart.
    """
    entry, text = ctypes.create_string_buffer(_ENTRY_BYTES), ctypes.create_string_buffer(_TEXT_BYTES)
    size, found = ctypes.c_size_t(_TEXT_BYTES), ctypes.c_void_p()
    error = _GETPWUID_R(ctypes.c_uint(uid), entry, text, size, ctypes.byref(found))
    if error:
        raise OSError(error, os.strerror(error))
