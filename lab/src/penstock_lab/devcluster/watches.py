"""Selectors and watches: history, then new changes, with bookmarks in quiet times."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from penstock_lab.devcluster import kindtable, statuses
from penstock_lab.devcluster.kindtable import Kind
from penstock_lab.devcluster.objectstore import HISTORY, Change, Entry, Store
from penstock_lab.devcluster.statuses import ApiError, Json

BOOKMARK_SECONDS: Final = 5.0
LONGEST: Final = 3600.0
Predicate = Callable[[Json], bool]
_SET: Final = re.compile(r"\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUAL: Final = re.compile(r"\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*")
_EXISTS: Final = re.compile(r"\s*(!?)\s*([^\s!=,()]+)\s*")


def _requirements(text: str) -> list[tuple[str, set[str] | None, bool]]:
    """The terms of a selector: key, accepted values (None: any), and whether it is negated."""
    found: list[tuple[str, set[str] | None, bool]] = []
    for term in re.split(r",(?![^()]*\))", text):
        if match := _SET.fullmatch(term):
            found.append((match[1], {value.strip() for value in match[3].split(",")}, match[2] == "notin"))
        elif match := _EQUAL.fullmatch(term):
            found.append((match[1], {match[3]}, match[2] == "!="))
        elif match := _EXISTS.fullmatch(term):
            found.append((match[2], None, match[1] == "!"))
        elif term.strip():
            raise statuses.bad_request(f"unable to parse requirement: {term!r}")
    return found


def _label(obj: Json, key: str) -> str | None:
    found: str | None = (obj["metadata"].get("labels") or {}).get(key)
    return found


def _field(obj: Json, path: str) -> str | None:
    """The value of any field; a real server supports only a few fields of each kind."""
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def selector(labels: str = "", fields: str = "") -> Predicate:
    """A predicate for both selectors of a request."""
    tests: list[tuple[Callable[[Json, str], str | None], str, set[str] | None, bool]]
    tests = [(_label, *term) for term in _requirements(labels)]
    tests += [(_field, *term) for term in _requirements(fields)]

    def holds(value: str | None, wanted: set[str] | None, negated: bool) -> bool:
        return (value is not None if wanted is None else value in wanted) != negated

    return lambda obj: all(holds(read(obj, key), wanted, negated) for read, key, wanted, negated in tests)


@dataclass(frozen=True, slots=True)
class WatchRequest:
    kind: Kind
    namespace: str | None
    version: int = 0
    matches: Predicate = lambda obj: True
    bookmarks: bool = False
    timeout: float = LONGEST
    name: str = ""

    def wants(self, entry: Entry | None) -> bool:
        if entry is None or self.namespace not in (None, entry.key[0]) or self.name not in ("", entry.key[1]):
            return False
        return self.matches(entry.obj)


def line(event: str, raw: bytes) -> bytes:
    return b'{"type":"' + event.encode() + b'","object":' + raw + b"}\n"


def seen(change: Change, request: WatchRequest) -> str:
    """The event for this watcher: entering its selection is ADDED, leaving it DELETED."""
    before, after = request.wants(change.before), change.type != "DELETED" and request.wants(change.entry)
    if after:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else ""


async def watch(
    store: Store, request: WatchRequest, render: Callable[[Entry], bytes] = lambda entry: entry.raw
) -> AsyncGenerator[bytes, None]:
    """Subscribes before it reads the history, without an await in between, so no change is missed."""
    queue: asyncio.Queue[Change] = asyncio.Queue()
    leave = store.listen(request.kind, queue.put_nowait)
    try:
        if not request.version:
            for entry in filter(request.wants, store.all(request.kind, request.namespace)):
                yield line("ADDED", render(entry))
        for change in store.since(request.kind, request.version) if request.version else ():
            if event := seen(change, request):
                yield line(event, render(change.entry))
        async for item in _news(queue, request):
            if item is None:
                yield line("BOOKMARK", _bookmark(request.kind, store.version))
            elif event := seen(item, request):
                yield line(event, render(item.entry))
    except ApiError as refusal:
        yield line("ERROR", msgspec.json.encode(refusal.body()))
    finally:
        leave()


async def _news(queue: asyncio.Queue[Change], request: WatchRequest) -> AsyncGenerator[Change | None, None]:
    """New changes until the timeout; None when a bookmark is due."""
    loop = asyncio.get_running_loop()
    end = loop.time() + request.timeout
    while (left := end - loop.time()) > 0:
        try:
            patience = min(left, BOOKMARK_SECONDS) if request.bookmarks else left
            yield await asyncio.wait_for(queue.get(), patience)
        except TimeoutError:
            if request.bookmarks and queue.empty():  # else it would contain a version that was not sent yet
                yield None
        if queue.qsize() > HISTORY:
            raise ApiError(410, "Expired", "this watch is too slow: list again")


def _bookmark(kind: Kind, version: int) -> bytes:
    metadata = {"resourceVersion": str(version), "creationTimestamp": None}
    body: Json = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
    if kind is kindtable.PODS:  # as Go encodes an empty object: a required list is null
        body["spec"] = {"containers": None}
    return msgspec.json.encode(body)
