"""The user behind a job, as this host knows it: name, groups and account for the pods."""

from __future__ import annotations

import dataclasses
import os
import pwd

from penstock.model import jobs, launches


def owner_of_job(allocation: jobs.Allocation) -> launches.Owner:
    """The job's user, charged to the job's account."""
    return dataclasses.replace(owner_of(allocation.identity.uid), account=allocation.account)


def owner_of(uid: int) -> launches.Owner:
    """A uid that the host does not know keeps its number and has no groups."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return launches.Owner(name=str(uid), uid=uid, gid=uid, groups=())
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return launches.Owner(name=entry.pw_name, uid=uid, gid=entry.pw_gid, groups=tuple(groups))
