"""The namespace of a job's pods, from the site's pattern: by user, or by account for teams that share.

Said once for penstockd, which makes namespaces, and for whatever renders or checks them. Two owners never
have one name: where a user's name is none that Kubernetes takes, the number stands for it; an account has no
number, so that is an error in words. Names of the cluster's own are nobody's.
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
    """What is replaced in a pattern; ValueError when it is none."""
    found = frozenset(word for _, word, _, _ in string.Formatter().parse(pattern) if word is not None)
    if found - set(WORDS):
        raise ValueError(f"only {', '.join(f'{{{word}}}' for word in WORDS)} are replaced")
    return found


def is_shared(pattern: str) -> bool:
    """Whether all users of an account have one namespace together."""
    return not words_of(pattern) & PERSONAL


def is_name(text: str) -> bool:
    """Whether Kubernetes takes it as a namespace's name."""
    return _DNS_LABEL.fullmatch(text) is not None


def is_reserved(text: str, also: Collection[str] = ()) -> bool:
    """Whether the namespace is the cluster's or the site's own, where no job has any business."""
    return _SYSTEM.fullmatch(text) is not None or text in also


def namespace_of(owner: launches.Owner, policy: PodPolicy) -> str:
    """The namespace of a job of that user; UsageError when there is none for it."""
    pattern, uid, account = policy.namespace_pattern, str(owner.uid), owner.account
    if "account" in words_of(pattern) and not account:
        raise errors.UsageError(
            "the job has no account, and namespaces go by account here",
            hint="submit it with --account, or ask the site for a default account",
        )
    is_number = owner.name.isdigit()  # it would be the name of the user of that number
    for name in (uid if is_number else owner.name, uid):
        found = pattern.format(user=name, uid=uid, account=account, cluster=policy.cluster)
        if is_name(found):
            break
    if not is_name(found):
        raise errors.UsageError(
            f"account {account!r} would have the namespace {found!r}, which is no name in Kubernetes",
            hint="use an account of small letters, digits and dashes, or ask for another namespace_pattern",
        )
    if is_reserved(found, policy.reserved_namespaces):
        raise errors.UsageError(
            f"the namespace {found!r} is not for jobs", hint="ask the site to change its namespace_pattern"
        )
    return found
