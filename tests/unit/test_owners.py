"""The user behind a job, with a name service that comes and goes."""

from __future__ import annotations

import dataclasses
import os
import pwd

import pytest

from penstock.bridge import owners
from penstock.model import launches
from tests.unit import fakes


def test_who_was_known_stays_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job would run without its groups, in another namespace, while LDAP restarts."""
    found = owners.Owners()
    before = found.of(os.getuid())

    def away(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", away)
    assert found.of(os.getuid()) == before
    assert found.of(os.getuid(), 12).gid == 12
    assert owners.Owners().of(1001) == launches.Owner(name="1001", uid=1001, gid=1001, groups=())


def test_a_job_has_the_group_that_it_was_submitted_with() -> None:
    """As after newgrp: beside all groups of its user, as plain Slurm does it."""
    entry = pwd.getpwuid(os.getuid())
    job = dataclasses.replace(fakes.allocation(), identity=fakes.identity(uid=entry.pw_uid), gid=100)
    owner = owners.Owners().of_job(job)
    assert owner.gid == 100
    assert owner.groups == tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
