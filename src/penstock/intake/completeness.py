"""When is a file complete? When it has stopped changing, or its writer says so.

Time is our own monotonic clock. The NAS's times are only compared with each other, so it does not matter how
wrong its clock is. Whatever looks like a writer's word but may be about another file is none: a marker that
is older than the file is left of an earlier one of that name, and an inode number alone says nothing, since
file systems give the number of a file that was removed to the next one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Set

from penstock.intake import filenames
from penstock.nas import listing

Key = tuple[str, str]
EMPTY_SECONDS = 30.0  # an empty file is usually one whose content is still to come


@dataclasses.dataclass
class Watched:
    """A file in submit/ and since when it has been as it is."""

    sight: listing.Sight
    since: float
    first: float
    cut_short: bool = False
    """It was written while the NAS was full."""
    complete: bool = False
    """Its writer says so."""

    @property
    def key(self) -> Key:
        return self.sight.folder, self.sight.name


def _declares(marker: listing.Sight | None, sight: listing.Sight) -> bool:
    """Whether the marker is of the file's owner and was made when the file was as it is now."""
    if marker is None or marker.uid != sight.uid:
        return False
    return marker.sign.mtime_ns >= sight.sign.mtime_ns and marker.changed_ns >= sight.changed_ns


class Tracker:
    """Remembers what submit/ looked like."""

    def __init__(self, settle: float) -> None:
        self.settle = settle
        self.watched: dict[Key, Watched] = {}
        self._hidden: frozenset[listing.Sign] = frozenset()

    def observe(
        self, found: listing.Listing, *, now: float, moved: Set[str] = frozenset(), full: bool = False
    ) -> None:
        """Take in one look; what is no longer there is forgotten, but not what could not be looked at."""
        markers = {
            (sight.folder, filenames.marked(sight.name)): sight
            for sight in found.sights
            if filenames.marked(sight.name)
        }
        files = [sight for sight in found.sights if not filenames.marked(sight.name)]
        kept = {key: watched for key, watched in self.watched.items() if found.broken.keys() & set(key)}
        self.watched = kept | {
            watched.key: watched for watched in (self._updated(sight, now, full) for sight in files)
        }
        for watched in self.watched.values():
            sight = watched.sight
            declared = _declares(markers.get(watched.key), sight)
            renamed = sight.sign in self._hidden or (not sight.folder and sight.name in moved)
            watched.complete = watched.complete or declared or renamed
        self._hidden = found.hidden

    def _updated(self, sight: listing.Sight, now: float, full: bool) -> Watched:
        before = self.watched.get((sight.folder, sight.name))
        if before is not None and before.sight.sign == sight.sign:
            before.sight = sight
            return before
        first = before.first if before is not None else now
        return Watched(sight=sight, since=now, first=first, cut_short=full)

    def ready(self, now: float) -> Iterator[Watched]:
        """Files to be taken, the longest known first."""
        for watched in sorted(self.watched.values(), key=lambda one: (one.first, one.sight.name)):
            if self.is_ready(watched, now):
                yield watched

    def is_ready(self, watched: Watched, now: float) -> bool:
        empty = watched.sight.regular and not watched.sight.sign.size
        if watched.complete and not empty:
            return True
        return now - watched.since >= (max(self.settle, EMPTY_SECONDS) if empty else self.settle)

    def forget(self, key: Key) -> None:
        """It is not there any more: we have taken it."""
        self.watched.pop(key, None)
