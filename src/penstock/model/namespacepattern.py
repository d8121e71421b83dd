"""The namespace of a job's pods, from the site's pattern: per user, or per account for teams that share.

Used by penstockd, which creates namespaces, and by whatever renders or checks them. Two owners never share
a name by accident: a user name that is not valid in Kubernetes is replaced by the uid. An account has no
number, so an invalid account name is an error. The cluster's own namespaces are never used.
"""

from __future__ import annotations

import re
import string
from collections.abc import Collection

from penstock import errors
from penstock.model import launches
from penstock.model.podpolicy import PodPolicy

WORDS = ("user", "uid", "account", "cluster")
PERSONAL = frozenset({"user", "uid"})
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SYSTEM = re.compile(r"default|kube-.*")


def words_of(pattern: str) -> frozenset[str]:
    """The placeholders of a pattern. ValueError for unknown ones."""
    found = frozenset(word for _, word, _, _ in string.Formatter().parse(pattern) if word is not None)
    if found - set(WORDS):
        raise ValueError(f"only {', '.join(f'{{{word}}}' for word in WORDS)} are replaced")
    return found


def is_shared(pattern: str) -> bool:
    """Whether all users of an account share a namespace."""
    return not words_of(pattern) & PERSONAL


def is_name(text: str) -> bool:
    """Whether it is a valid namespace name."""
    return _DNS_LABEL.fullmatch(text) is not None


def is_reserved(text: str, also: Collection[str] = ()) -> bool:
    """Whether the namespace belongs to the cluster or the site, not to jobs."""
    return _SYSTEM.fullmatch(text) is not None or text in also


def namespace_of(owner: launches.Owner, policy: PodPolicy) -> str:
    """The namespace for the user's jobs. UsageError if there is none."""
    pattern, uid, account = policy.namespace_pattern, str(owner.uid), owner.account
    if "account" in words_of(pattern) and not account:
        raise errors.UsageError(
            "the job has no account, and namespaces go by account here",
            hint="submit it with --account, or ask the site for a default account",
        )
    is_number = owner.name.isdigit()  # it could be another user's uid
    for name in (uid if is_number else owner.name, uid):
        found = pattern.format(user=name, uid=uid, account=account, cluster=policy.cluster)
        if is_name(found):
            break
    if not is_name(found):
        raise errors.UsageError(
            f"account {account!r} would have the namespace {found!r}, "
            "which is not a valid name in Kubernetes",
            hint="use an account of small letters, digits and dashes, or ask for another namespace_pattern",
        )
    if is_reserved(found, policy.reserved_namespaces):
        raise errors.UsageError(
            f"the namespace {found!r} is not for jobs", hint="ask the site to change its namespace_pattern"
        )
    return found
