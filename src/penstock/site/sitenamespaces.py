"""Namespaces of the users and accounts in a site file, and checks of its namespace pattern.

`penstock apply` creates these namespaces with their own quota; penstockd creates those of other users with
their first job, with the site's quota.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.model import namespacepattern
from penstock.site.findings import Place
from penstock.site.parts import Quota
from penstock.site.schema import Site
from penstock.site.yamlreader import Document

PATTERN: Place = ("kubernetes", "namespace_pattern")
Mistake = tuple[Place, str, str]


def all_homes(site: Site) -> dict[str, Quota | None]:
    """Namespaces of the file's users or accounts with their quotas; none if the pattern has {uid}."""
    words = namespacepattern.words_of(site.kubernetes.namespace_pattern)
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


def mistakes(site: Site, _: Document) -> Iterator[Mistake]:
    """Shared or invalid namespaces, and quotas that would apply to none."""
    pattern = site.kubernetes.namespace_pattern
    try:
        words = namespacepattern.words_of(pattern)
    except ValueError:
        yield PATTERN, f"found {pattern!r}", "only {user}, {uid}, {account} and {cluster} are replaced"
        return
    if not words & {"user", "uid", "account"}:
        yield PATTERN, f"{pattern!r} is the same for all users", "put {user} or {uid} in it, or {account}"
    elif words >= {"user", "account"}:
        found = f"with {pattern!r} user a-b of account c and user a of account b-c would share a namespace"
        yield PATTERN, found, "use {uid} instead of {user}"
    else:
        yield from _names(site, words)
        yield from _quotas(site, words)


def _names(site: Site, words: frozenset[str]) -> Iterator[Mistake]:
    """Check accounts' namespaces, and users' only against reserved names: others get one by uid."""
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
        yield place, f"its namespace would be {name!r}, which is not a valid name in Kubernetes", remedy
    elif namespacepattern.is_reserved(name, (site.kubernetes.namespace,)):
        remedy = "put something before it in kubernetes.namespace_pattern"
        yield place, f"its namespace would be {name!r}, which is reserved", remedy


def _quotas(site: Site, words: frozenset[str]) -> Iterator[Mistake]:
    """Quotas of users or accounts that have no namespace of their own."""
    for account_name, account in site.accounts.items():
        place: Place = ("accounts", account_name)
        if account.quota is not None and ("account" not in words or "uid" in words):
            found = "namespaces are per user, so the account has none"
            yield (*place, "quota"), found, "use a namespace_pattern with {account} alone"
        for user, entry in account.users.items():
            there: Place = (*place, "users", user, "quota")
            if entry.quota is None:
                continue
            if "user" not in words:
                found = "namespaces are not per user name"
                yield there, found, "put {user} into namespace_pattern, or give the quota to the account"
            elif not namespacepattern.is_name(_name(site, user=user)):
                found = f"{user!r} is not a valid name in Kubernetes: the namespace has the uid instead"
                yield there, found, "remove it: the site's `quota` applies"
