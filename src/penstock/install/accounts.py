"""Accounts and users of the site file in Slurm's accounting: added and set, never removed.

They carry history and money, so taking an installation back leaves them, and whoever is not named in the file
is never touched. GPU hours are Slurm's own GrpTRESMins.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence

from penstock import errors, wellknown
from penstock.render import searchpath
from penstock.site.parts import Account, User
from penstock.site.schema import Site

SECONDS = 60.0
FORMAT = "account,user,fairshare,grptresmins,partition"
Association = tuple[str, str]
"""Account and user; no user is the account itself."""
Limits = dict[str, str]


def wanted(site: Site) -> dict[Association, Limits]:
    """What the site file says of every account and user."""
    found: dict[Association, Limits] = {}
    for name, account in site.accounts.items():
        found[name, ""] = _limits(account)
        for user, said in account.users.items():
            found[name, user] = _limits(said)
    return found


def _limits(said: Account | User) -> Limits:
    minutes = []
    if isinstance(said, Account) and said.cpu_hours is not None:
        minutes.append(f"cpu={said.cpu_hours * 60}")
    if said.gpu_hours is not None:
        minutes.append(f"gres/gpu={said.gpu_hours * 60}")
    limits = {"fairshare": str(said.fairshare)} if said.fairshare is not None else {}
    return limits | ({"grptresmins": ",".join(minutes)} if minutes else {})


def parse(text: str) -> dict[Association, Limits]:
    """What `sacctmgr show associations` prints with FORMAT; what holds in one partition alone is left out."""
    found: dict[Association, Limits] = {}
    for line in text.split("\n"):
        words = line.split("|")
        if len(words) >= 5 and not words[4]:
            account, user, fairshare, minutes = words[:4]
            found[account, user] = {"fairshare": fairshare, "grptresmins": minutes}
    return found


def changes(
    goal: Mapping[Association, Limits], live: Mapping[Association, Limits], *, cluster: str
) -> Iterator[tuple[str, ...]]:
    """Commands of sacctmgr that make what is live say what the goal says, on this cluster only: without its
    name they would mean all that the slurmdbd has.
    """
    here = f"cluster={cluster}"
    for (account, user), limits in goal.items():
        known = live.get((account, user))
        if known is None:
            new = ("user", user, f"account={account}") if user else ("account", account)
            yield ("add", *new, here, *(f"{key}={value}" for key, value in limits.items()))
            continue
        different = tuple(f"{key}={value}" for key, value in limits.items() if not _same(known[key], value))
        if different:
            where = (f"name={user}", f"account={account}") if user else (f"name={account}",)
            yield ("modify", "user" if user else "account", "where", *where, here, "set", *different)


def _same(known: str, wanted: str) -> bool:
    """Limits of other TRES stay whatever is set here."""
    return set(wanted.split(",")) <= set(known.split(","))


def plan(site: Site, *, cluster: str) -> tuple[tuple[str, ...], ...]:
    """Commands that are needed now; none when the site file names no accounts."""
    goal = wanted(site)
    if not goal:
        return ()
    argv = ("--noheader", "--parsable2", "show", "associations", f"cluster={cluster}", f"format={FORMAT}")
    return tuple(changes(goal, parse(_sacctmgr(site, argv)), cluster=cluster))


def run(site: Site, commands: Sequence[tuple[str, ...]]) -> None:
    """Do them, one after another."""
    for command in commands:
        _sacctmgr(site, ("--immediate", *command))


def qos_names(site: Site) -> frozenset[str] | None:
    """Every QOS; None when the accounting does not answer."""
    try:
        text = _sacctmgr(site, ("--noheader", "--parsable2", "show", "qos", "format=name"))
    except errors.InstallError:
        return None
    return frozenset(text.split()) or None


def _sacctmgr(site: Site, words: Sequence[str]) -> str:
    environment = {
        wellknown.ENV_SLURM_CONF: site.slurm.conf,
        "LC_ALL": "C",
        "PATH": searchpath.including(site.slurm.commands_dir),
    }
    try:
        done = subprocess.run(
            ["sacctmgr", *words],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise errors.InstallError(f"sacctmgr cannot be asked: {error}") from error
    if done.returncode and "Nothing new added" not in done.stdout:
        said = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        raise errors.InstallError(f"sacctmgr {' '.join(words)}: {said.strip() or 'failed'}")
    return done.stdout
