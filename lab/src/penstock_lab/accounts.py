"""Accounts and users in the lab's accounting database; adding them is idempotent.

Each call of sacctmgr takes a third of a second, so one query comes first and only what is missing is added.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock import errors
from penstock_lab import paths, shellenv, spec, subprocesses

Known = set[tuple[str, str]]
"""(account, user) pairs; the user is empty for the account itself."""


def register(place: paths.LabPaths, lab: spec.LabSpec) -> str:
    """Register the lab's cluster, its accounts, its user and root."""
    known = _known(place)
    if not known:
        _sacctmgr(place, "add", "cluster", lab.name)
    missing = [account for account in spec.ACCOUNTS if (account, "") not in known]
    if missing:
        _sacctmgr(place, "add", "account", ",".join(missing), f"cluster={lab.name}", "organization=lab")
    _add_missing(place, known, (lab.user, "root"), account=spec.ACCOUNTS[0])
    return ", ".join(spec.ACCOUNTS)


def add_user(place: paths.LabPaths, name: str, *, account: str) -> None:
    known = _known(place)
    if (account, "") not in known:
        accounts = sorted({name for name, _ in known} - {"root"})
        raise errors.UsageError(
            f"there is no account {account} in this lab", hint=f"There are: {', '.join(accounts)}"
        )
    _add_missing(place, known, (name,), account=account)


def _add_missing(place: paths.LabPaths, known: Known, names: Sequence[str], *, account: str) -> None:
    missing = [name for name in names if (account, name) not in known]
    if missing:
        _sacctmgr(place, "add", "user", ",".join(missing), f"account={account}")


def _known(place: paths.LabPaths) -> Known:
    output = _sacctmgr(place, "--noheader", "--parsable2", "show", "associations", "format=account,user")
    pairs = (line.partition("|") for line in output.split("\n"))
    return {(account, user) for account, _, user in pairs if account}


def _sacctmgr(place: paths.LabPaths, *arguments: str) -> str:
    argv = ("sacctmgr", "--immediate", *arguments)
    return subprocesses.run(argv, environment=shellenv.slurm(place)).stdout
