"""Job owners, with a name service that fails or hangs."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import grp
import os
import pwd
import threading

import pytest

from penstock import errors
from penstock.bridge import owners
from penstock.model import launches
from tests.unit import fakes


def away(number: int) -> pwd.struct_passwd:
    raise KeyError(f"not found: {number}")


async def test_a_known_user_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """While LDAP restarts, a job would run without its groups, in another namespace."""
    found = owners.Owners()
    before = await found.of(os.getuid())
    monkeypatch.setattr(pwd, "getpwuid", away)
    assert await found.of(os.getuid()) == before
    assert (await found.of(os.getuid(), 12)).gid == 12
    unknown = launches.Owner(name="1001", uid=1001, gid=1001, groups=())
    assert await owners.Owners().of(1001) == unknown


async def test_an_unknown_user_waits_for_a_failing_name_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a stopped sssd pwd raises KeyError and getpwuid_r returns ENOENT."""
    found = owners.Owners()
    known = await found.of(os.getuid())
    monkeypatch.setattr(pwd, "getpwuid", away)
    monkeypatch.setattr(owners, "_GETPWUID_R", lambda *asked: errno.ENOENT)
    with pytest.raises(errors.KubeUnavailable, match="does not answer for uid 4242424"):
        await found.of(4242424)
    assert await found.of(os.getuid()) == known
    monkeypatch.undo()
    assert (await found.of(4242424)).name == "4242424"


async def test_known_groups_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name service without groups reports the primary group only."""
    found = owners.Owners()
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, 4711])
    before = await found.of(os.getuid())
    assert 4711 in before.groups
    monkeypatch.setattr(grp, "getgrgid", away)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid])
    assert await found.of(os.getuid()) == before
    entry = pwd.getpwuid(os.getuid())
    assert (await owners.Owners().of(os.getuid())).groups == (entry.pw_gid,)


async def test_a_job_has_its_submission_group() -> None:
    """As after newgrp: with all groups of its user, as in plain Slurm."""
    entry = pwd.getpwuid(os.getuid())
    job = dataclasses.replace(fakes.allocation(), identity=fakes.identity(uid=entry.pw_uid), gid=100)
    owner = await owners.Owners().of_job(job)
    assert owner.gid == 100
    assert owner.groups == tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))


async def test_a_hanging_name_service_blocks_only_its_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known users come from the cache; there is at most one thread per uid."""
    found = owners.Owners(seconds=0.05)
    known, true, released = await found.of(os.getuid()), owners.look_up, threading.Event()
    waiting: list[int] = []

    def hang(uid: int) -> owners.User | None:
        waiting.append(uid)
        released.wait(60)
        return true(uid)

    monkeypatch.setattr(owners, "look_up", hang)
    assert await found.of(os.getuid()) == known
    for _ in range(3):
        with pytest.raises(errors.KubeUnavailable, match="does not answer for uid 4242424"):
            await found.of(4242424)
    assert waiting == [os.getuid(), 4242424]
    released.set()
    await asyncio.gather(*found.pending.values())
    assert (await found.of(4242424)).name == "4242424"
