"""Which namespaces a site file names beforehand, and what can be wrong with its pattern for them.

Users and accounts that the file names get their namespaces from `penstock apply`, with their own quota; those
of everybody else are made by penstockd with the first job, with the site's.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.model import namespacepattern
from penstock.site.findings import Place
from penstock.site.parts import Quota
from penstock.site.schema import Site

PATTERN: Place = ("kubernetes", "namespace_pattern")
Mistake = tuple[Place, str, str]


def all_homes(site: Site) -> dict[str, Quota | None]:
    """Namespaces of users or accounts in the file, with their quotas; none where names need a number."""
    pattern = site.kubernetes.namespace_pattern
    words = namespacepattern.words_of(pattern)
    if "uid" in words:
        return {}
    if "account" in words:
        return {
            _name(site, account=name): account.quota or site.quota for name, account in site.accounts.items()
        }
    named = {
        _name(site, user=name): user.quota or site.quota
        for account in site.accounts.values()
        for name, user in account.users.items()
    }
    return {name: quota for name, quota in named.items() if namespacepattern.is_name(name)}


def _name(site: Site, *, user: str = "", account: str = "") -> str:
    return site.kubernetes.namespace_pattern.format(user=user, account=account, cluster=site.cluster)


def mistakes(site: Site) -> Iterator[Mistake]:
    """A pattern that two owners would share, names that Kubernetes refuses, quotas that hold nobody."""
    pattern = site.kubernetes.namespace_pattern
    try:
        words = namespacepattern.words_of(pattern)
    except ValueError:
        allowed = "only {user}, {uid}, {account} and {cluster} are replaced"
        yield PATTERN, f"found {pattern!r}", allowed
        return
    if not words & {"user", "uid", "account"}:
        yield PATTERN, f"{pattern!r} is the same for all users", "put {user} or {uid} in it, or {account}"
    elif words >= {"user", "account"}:
        found = f"with {pattern!r} user a-b of account c and user a of account b-c would share a namespace"
        yield PATTERN, found, "write {uid} for {user}: a number ends where it ends"
    else:
        yield from _names(site, words)
        yield from _quotas(site, words)


def _names(site: Site, words: frozenset[str]) -> Iterator[Mistake]:
    """Each account by itself; of users only those that would have a namespace of somebody else's."""
    for account_name, account in site.accounts.items():
        place: Place = ("accounts", account_name)
        if "account" in words:
            probe = site.kubernetes.namespace_pattern.format(
                uid="1", account=account_name, cluster=site.cluster
            )
            yield from _refused(place, probe, site)
        for user in account.users if "user" in words else ():
            probe = _name(site, user=user)
            if namespacepattern.is_name(probe):
                yield from _refused((*place, "users", user), probe, site)


def _refused(place: Place, name: str, site: Site) -> Iterator[Mistake]:
    if not namespacepattern.is_name(name):
        remedy = "small letters, digits and dashes, at most 63; rename it or change namespace_pattern"
        yield place, f"its namespace would be {name!r}, which is no name in Kubernetes", remedy
    elif namespacepattern.is_reserved(name, (site.kubernetes.namespace,)):
        remedy = "put something before it in kubernetes.namespace_pattern"
        yield place, f"its namespace would be {name!r}, which is the cluster's own", remedy


def _quotas(site: Site, words: frozenset[str]) -> Iterator[Mistake]:
    """A quota for something that has no namespace of its own in this file."""
    for account_name, account in site.accounts.items():
        place: Place = ("accounts", account_name)
        if account.quota is not None and ("account" not in words or "uid" in words):
            found = "namespaces go by user here, so an account has none to put a quota on"
            yield (*place, "quota"), found, "set namespace_pattern to one with {account} alone"
        for user, said in account.users.items():
            there: Place = (*place, "users", user, "quota")
            if said.quota is None:
                continue
            if "user" not in words:
                found = "namespaces do not go by user name here"
                yield there, found, "put {user} into namespace_pattern, or give the quota to the account"
            elif not namespacepattern.is_name(_name(site, user=user)):
                found = f"{user!r} is no name in Kubernetes: the namespace has the user's number"
                yield there, found, "leave it to the site's `quota`"
