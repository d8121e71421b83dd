"""Decides when a file is complete: it has stopped changing, or its writer says so (rename, <name>.done).

Durations use our monotonic clock. Times of the NAS are compared only with each other, so its clock may be
wrong. A marker older than the file is ignored: it belongs to an earlier file of that name. An inode number
alone proves nothing, because file systems reuse the numbers of removed files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Set

from penstock.intake import filenames
from penstock.nas import listing

Key = tuple[str, str]
EMPTY_SECONDS = 30.0  # the content of an empty file usually follows


@dataclasses.dataclass
class Watched:
    """A file in submit/ and since when it is unchanged."""

    info: listing.FileInfo
    since: float
    first: float
    cut_short: bool = False
    """Written while the NAS was full."""
    complete: bool = False
    """Declared complete by its writer."""

    @property
    def key(self) -> Key:
        return self.info.folder, self.info.name


def _declares(marker: listing.FileInfo | None, info: listing.FileInfo) -> bool:
    """Whether the marker belongs to the file's owner and is not older than the file's last change."""
    if marker is None or marker.uid != info.uid:
        return False
    return marker.stamp.mtime_ns >= info.stamp.mtime_ns and marker.changed_ns >= info.changed_ns


class Tracker:
    def __init__(self, settle: float) -> None:
        self.settle = settle
        self.watched: dict[Key, Watched] = {}
        self._hidden: frozenset[listing.Stamp] = frozenset()

    def observe(
        self, found: listing.Listing, *, now: float, moved: Set[str] = frozenset(), full: bool = False
    ) -> None:
        """Merge one scan. Files that are gone are forgotten, files that could not be read are kept."""
        kept = {key: watched for key, watched in self.watched.items() if found.broken.keys() & set(key)}
        markers, present = {}, {}
        for info in found.files:
            if marked := filenames.marked(info.name):
                markers[info.folder, marked] = info
            else:
                present[info.folder, info.name] = self._updated(info, now, full)
        self.watched = kept | present
        for watched in self.watched.values():
            info = watched.info
            declared = _declares(markers.get(watched.key), info)
            renamed = info.stamp in self._hidden or (not info.folder and info.name in moved)
            watched.complete = watched.complete or declared or renamed
        self._hidden = found.hidden

    def _updated(self, info: listing.FileInfo, now: float, full: bool) -> Watched:
        before = self.watched.get((info.folder, info.name))
        if before is not None and before.info.stamp == info.stamp:
            before.info = info
            return before
        first = before.first if before is not None else now
        return Watched(info=info, since=now, first=first, cut_short=full)

    def ready(self, now: float) -> Iterator[Watched]:
        """Complete files, the longest known first."""
        for watched in sorted(self.watched.values(), key=lambda one: (one.first, one.info.name)):
            if self.is_ready(watched, now):
                yield watched

    def is_ready(self, watched: Watched, now: float) -> bool:
        empty = watched.info.regular and not watched.info.stamp.size
        if watched.complete and not empty:
            return True
        return now - watched.since >= (max(self.settle, EMPTY_SECONDS) if empty else self.settle)

    def forget(self, key: Key) -> None:
        self.watched.pop(key, None)
