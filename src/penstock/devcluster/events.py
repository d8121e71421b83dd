"""Event objects, counted instead of repeated, and bounded: the oldest give way."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from penstock.devcluster import kinds, statuses, times
from penstock.devcluster.objects import NOW, Objects
from penstock.devcluster.store import Entry

_KEPT: Final = 2000
_Same = tuple[str, str, str]


@dataclass
class Events:
    """Writes what `kubectl describe` shows under Events."""

    objects: Objects
    _known: OrderedDict[_Same, tuple[str, str]] = field(default_factory=OrderedDict)

    def record(
        self, about: Entry, reason: str, message: str, *, component: str, warning: bool = False
    ) -> None:
        same = (about.uid, reason, message)
        try:
            if not self._again(same):
                self._first(same, about, component, "Warning" if warning else "Normal")
        except statuses.ApiError as error:
            if error.code not in (403, 404):  # the namespace is going: nobody will look for events in it
                raise

    def _again(self, same: _Same) -> bool:
        key = self._known.get(same)
        entry = self.objects.store.get(kinds.EVENTS, *key) if key else None
        if entry is None:
            return False
        obj = entry.copy()
        obj.update(count=obj["count"] + 1, lastTimestamp=times.now())
        self.objects.update(kinds.EVENTS, entry, obj)
        return True

    def _first(self, same: _Same, about: Entry, component: str, kind: str) -> None:
        namespace, name = about.key
        involved = {
            "kind": about.kind.kind,
            "apiVersion": about.kind.api_version,
            "namespace": namespace,
            "name": name,
            "uid": about.uid,
            "resourceVersion": str(about.version),
        }
        obj = {
            "metadata": {"name": f"{name}.{self.objects.store.version:016x}"},
            "involvedObject": {field: value for field, value in involved.items() if value},
            "reason": same[1],
            "message": same[2],
            "type": kind,
            "count": 1,
            "firstTimestamp": times.now(),
            "lastTimestamp": times.now(),
            "eventTime": None,
            "source": {"component": component},
            "reportingComponent": component,
            "reportingInstance": "",
        }
        made = self.objects.create(kinds.EVENTS, namespace or "default", obj)
        self._known[same] = made.key
        if len(self._known) > _KEPT:
            key = self._known.popitem(last=False)[1]
            oldest = self.objects.store.get(kinds.EVENTS, *key)
            if oldest:
                self.objects.delete(kinds.EVENTS, oldest, NOW)
