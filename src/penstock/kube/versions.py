"""Order of an object's states, and objects that were deleted for good.

Resource versions of one kind are growing numbers (guaranteed since Kubernetes 1.35). If they are not
numbers, the latest received wins.
"""

from __future__ import annotations

import collections

from penstock.model import numbers

REMEMBERED = 20_000


def is_older(version: str, than: str) -> bool:
    """Whether the version is certainly older."""
    one, other = numbers.natural(version), numbers.natural(than)
    return one is not None and other is not None and one < other


def is_news(version: str, known: str) -> bool:
    """Whether an object of this version may be newer than the known one."""
    return version != known and not is_older(version, known)


class Tombstones:
    """uids of recently deleted objects: a late event must not bring them back."""

    def __init__(self) -> None:
        self._uids: collections.OrderedDict[str, None] = collections.OrderedDict()

    def add(self, uid: str) -> None:
        if uid:
            self._uids[uid] = None
            while len(self._uids) > REMEMBERED:
                self._uids.popitem(last=False)

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids
