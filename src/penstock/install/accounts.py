"""Adds the site file's accounts and users to Slurm's accounting, and sets their limits.

They are never removed, as usage is booked on them, and others are never changed. GPU hours are GrpTRESMins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock import errors
from penstock.render import searchpath
from penstock.site.parts import Account, User
from penstock.site.schema import Site
from penstock.slurm import associations
from penstock.slurm.associations import Association, Limits


def wanted(site: Site) -> dict[Association, Limits]:
    """Limits of the site file's accounts and users."""
    found: dict[Association, Limits] = {}
    for name, account in site.accounts.items():
        found[name, ""] = _limits(account)
        for user, entry in account.users.items():
            found[name, user] = _limits(entry)
    return found


def _limits(entry: Account | User) -> Limits:
    minutes = []
    if isinstance(entry, Account) and entry.cpu_hours is not None:
        minutes.append(f"cpu={entry.cpu_hours * 60}")
    if entry.gpu_hours is not None:
        minutes.append(f"gres/gpu={entry.gpu_hours * 60}")
    limits = {"fairshare": str(entry.fairshare)} if entry.fairshare is not None else {}
    return limits | ({"grptresmins": ",".join(minutes)} if minutes else {})


def plan(site: Site, *, cluster: str) -> tuple[tuple[str, ...], ...]:
    """Arguments of the sacctmgr commands that are needed."""
    if not site.accounts:
        return ()
    live = asyncio.run(_accounting(site).of(cluster))
    return tuple(associations.changes(wanted(site), live, cluster=cluster))


def run(site: Site, commands: Sequence[tuple[str, ...]]) -> None:
    for words in commands:
        asyncio.run(_accounting(site).change(words))


def qos_names(site: Site) -> frozenset[str] | None:
    """All QOSes; None if the accounting does not answer."""
    try:
        return asyncio.run(_accounting(site).qos_names()) or None
    except errors.SlurmError:
        return None


def _accounting(site: Site) -> associations.Associations:
    return associations.Associations(site.slurm.conf, searchpath.including(site.slurm.commands_dir))
