"""The user behind a job, as this host knows it: name, groups and account for the pods.

To Python a name service that does not answer is one that does not know the user: who was known stays known.
"""

from __future__ import annotations

import dataclasses
import os
import pwd

from penstock.model import jobs, launches


@dataclasses.dataclass(frozen=True)
class Owners:
    """Looks users up."""

    known: dict[tuple[int, int | None], launches.Owner] = dataclasses.field(default_factory=dict)

    def of_job(self, allocation: jobs.Allocation) -> launches.Owner:
        """The job's user, in the group that the job was submitted with, charged to the job's account."""
        found = self.of(allocation.identity.uid, allocation.gid)
        return dataclasses.replace(found, account=allocation.account)

    def of(self, uid: int, gid: int | None = None) -> launches.Owner:
        """A uid that the host has never known keeps its number and has no groups."""
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            unknown = launches.Owner(name=str(uid), uid=uid, gid=uid if gid is None else gid, groups=())
            return self.known.get((uid, gid), unknown)
        groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
        group = entry.pw_gid if gid is None else gid
        found = launches.Owner(name=entry.pw_name, uid=uid, gid=group, groups=groups)
        self.known[uid, gid] = found
        return found
