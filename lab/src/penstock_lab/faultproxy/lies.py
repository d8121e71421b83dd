"""How answers are falsified: lists that lack objects, watches whose events are lost, old or out of order."""

from __future__ import annotations

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
    """A refusal as the API words it."""
    return msgspec.json.encode(
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "on purpose"}
    )


def gone_event() -> bytes:
    return msgspec.json.encode({"type": "ERROR", "object": GONE}) + b"\n"


def shorten(body: bytes, request: kuberequests.Request, faults: faultrules.Faults) -> bytes:
    """A list without some or all of its items; everything else is left as it is."""
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


class EventLiar:
    """Falsifies one watch, event by event."""

    def __init__(self, request: kuberequests.Request, faults: faultrules.Faults) -> None:
        self._request = request
        self._faults = faults
        self._before: dict[str, bytes] = {}
        self._held = b""

    def lines(self, line: bytes) -> list[bytes]:
        """What the client gets in place of this line."""
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
        """The object as an earlier event had it."""
        event = msgspec.json.decode(line)
        if event["type"] == "BOOKMARK":
            return []
        uid = event["object"].get("metadata", {}).get("uid", "")
        before = self._before.get(uid)
        self._before[uid] = line.replace(b'"type":"ADDED"', b'"type":"MODIFIED"', 1)
        return [before] if before else []
