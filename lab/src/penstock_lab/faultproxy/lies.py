"""False responses: lists that lack objects, watches with lost, stale or reordered events."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from penstock_lab.faultproxy import faultrules, kuberequests

GONE = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "too old resource version (a fault on purpose)",
    "reason": "Expired",
    "code": 410,
}


def status_body(code: int) -> bytes:
    """An error response of the API."""
    return msgspec.json.encode(
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "on purpose"}
    )


def gone_event() -> bytes:
    return msgspec.json.encode({"type": "ERROR", "object": GONE}) + b"\n"


def shorten(body: bytes, request: kuberequests.Request, faults: faultrules.Faults) -> bytes:
    """Remove some or all items of a list; other responses are unchanged."""
    if faults.strikes("empty", request):
        return _with_items(body, keep=0.0, faults=faults)
    rule = faults.strikes("partial", request)
    return _with_items(body, keep=rule.keep, faults=faults) if rule else body


def _with_items(body: bytes, *, keep: float, faults: faultrules.Faults) -> bytes:
    found: dict[str, Any] = msgspec.json.decode(body)
    if "items" not in found:
        return body
    found["items"] = [item for item in found["items"] or () if faults.chance.random() < keep]
    return msgspec.json.encode(found)


@dataclasses.dataclass
class EventLiar:
    """Falsifies one watch, event by event."""

    _request: kuberequests.Request
    _faults: faultrules.Faults
    _before: dict[str, bytes] = dataclasses.field(default_factory=dict)
    _held: bytes = b""

    def lines(self, line: bytes) -> list[bytes]:
        """The lines sent to the client in place of this one."""
        if self._faults.strikes("freeze", self._request) or self._faults.strikes("drop", self._request):
            return []
        if self._faults.strikes("stale", self._request):
            return [line, *self._earlier(line)]
        self._earlier(line)
        held, self._held = self._held, b""
        if not held and self._faults.strikes("reorder", self._request):
            self._held = line
            return []
        return [line, held] if held else [line]

    def _earlier(self, line: bytes) -> list[bytes]:
        """The previous event of this object, if any; remembers this one."""
        event = msgspec.json.decode(line)
        if event["type"] == "BOOKMARK":
            return []
        uid = event["object"].get("metadata", {}).get("uid", "")
        before = self._before.get(uid)
        self._before[uid] = line.replace(b'"type":"ADDED"', b'"type":"MODIFIED"', 1)
        return [before] if before else []
