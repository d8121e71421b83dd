"""Which of two states of an object is the later one, and which objects have ended for good.

Resource versions of one kind are numbers that only grow (Kubernetes promises it since 1.35). Anything else is
taken as it comes.
"""

from __future__ import annotations

import collections

from penstock.model import numbers

REMEMBERED = 20_000


def is_older(version: str, than: str) -> bool:
    """Whether the version is certainly of an earlier time."""
    one, other = numbers.natural(version), numbers.natural(than)
    return one is not None and other is not None and one < other


def is_news(version: str, known: str) -> bool:
    """Whether an object of this version may tell something that the known one does not."""
    return version != known and not is_older(version, known)


class Tombstones:
    """uids of objects that are gone, the latest ones: an event that comes late cannot bring them back."""

    def __init__(self) -> None:
        self._uids: collections.OrderedDict[str, None] = collections.OrderedDict()

    def add(self, uid: str) -> None:
        if uid:
            self._uids[uid] = None
            while len(self._uids) > REMEMBERED:
                self._uids.popitem(last=False)

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids
