"""The latest version of every object, a version counter, and a bounded history for watches.

Stored objects are never changed in place: writers change an `Entry.copy()` and put it back. Each version
keeps its JSON, so lists and watches are joined from bytes that were encoded once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from penstock_lab.devcluster.kindtable import Kind
from penstock_lab.devcluster.statuses import ApiError, Json

HISTORY: Final = 10_000
Key = tuple[str, str]  # namespace ("" for cluster-wide kinds) and name


def now(offset: float = 0) -> str:
    """The time in whole seconds, as in creationTimestamp; truncated, so never in the future."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + offset))


@dataclass(frozen=True, slots=True)
class Entry:
    kind: Kind
    obj: Json
    raw: bytes
    version: int

    @property
    def key(self) -> Key:
        return key_of(self.obj)

    @property
    def uid(self) -> str:
        return str(self.obj["metadata"]["uid"])

    @property
    def is_going(self) -> bool:
        """Whether it is marked for deletion."""
        return "deletionTimestamp" in self.obj["metadata"]

    def copy(self) -> Json:
        copied: Json = msgspec.json.decode(self.raw)
        return copied


@dataclass(frozen=True, slots=True)
class Change:
    """A step of history; `entry` is the new version, or the last one of a removed object."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    entry: Entry
    before: Entry | None


Listener = Callable[[Change], None]


def key_of(obj: Json) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


class Store:
    """The objects, without Kubernetes' rules."""

    def __init__(self, history: int = HISTORY) -> None:
        self.version = time.time_ns() // 10**6  # higher than any version of an earlier cluster here
        self._objects: dict[tuple[str, str], dict[Key, Entry]] = {}
        self._history: deque[Change] = deque(maxlen=history)
        self._forgotten = self.version  # versions before this one are no longer in the history
        self._listeners: dict[tuple[str, str] | None, list[Listener]] = {}

    def get(self, kind: Kind, namespace: str, name: str) -> Entry | None:
        return self._objects.get(kind.resource, {}).get((namespace, name))

    def all(self, kind: Kind, namespace: str | None = None) -> list[Entry]:
        """Ordered by namespace and name, as a real server lists them."""
        found = self._objects.get(kind.resource, {})
        return [found[key] for key in sorted(found) if namespace in (None, key[0])]

    def everything(self) -> Iterator[Entry]:
        for found in self._objects.values():
            yield from found.values()

    def put(self, kind: Kind, obj: Json) -> Entry:
        """Store a new version; namespace and name must be set."""
        objects = self._objects.setdefault(kind.resource, {})
        before = objects.get(key_of(obj))
        entry = objects[key_of(obj)] = self._stamped(kind, obj)
        self._tell(Change("MODIFIED" if before else "ADDED", entry, before))
        return entry

    def remove(self, kind: Kind, namespace: str, name: str) -> Entry:
        """Remove the object; returns its last state with the version number of the removal."""
        before = self._objects[kind.resource].pop((namespace, name))
        entry = self._stamped(kind, before.copy())
        self._tell(Change("DELETED", entry, before))
        return entry

    def _stamped(self, kind: Kind, obj: Json) -> Entry:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        return Entry(kind, obj, msgspec.json.encode(obj), self.version)

    def _tell(self, change: Change) -> None:
        if len(self._history) == self._history.maxlen:
            self._forgotten = self._history[0].entry.version
        self._history.append(change)
        for resource in (change.entry.kind.resource, None):
            for listener in list(self._listeners.get(resource, ())):
                listener(change)

    def listen(self, kind: Kind | None, listener: Listener) -> Callable[[], None]:
        """Call the listener at every change of this kind (or of any); returns an unsubscribe function."""
        listeners = self._listeners.setdefault(kind.resource if kind else None, [])
        listeners.append(listener)
        return lambda: listeners.remove(listener)

    def since(self, kind: Kind, version: int) -> list[Change]:
        """The changes of this kind after that version; raises 410."""
        self.check_known(version)
        newer = [change for change in self._history if change.entry.version > version]
        return [change for change in newer if change.entry.kind.resource == kind.resource]

    def check_known(self, version: int) -> None:
        if version < self._forgotten:
            raise ApiError(410, "Expired", f"too old resource version: {version} ({self._forgotten})")

    def compact(self) -> int:
        """Drop the history, so that all versions so far are too old to watch or continue from."""
        self._history.clear()
        self.version += 1
        self._forgotten = self.version
        return self.version
