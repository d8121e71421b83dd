"""The admin API under /devcluster/v1/: faults on demand, and history compacted now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.devcluster import handlers, queries, statuses
from penstock.devcluster.faults import Faults
from penstock.devcluster.store import Store


class Admin:
    """PUT sets the faults of one thing, DELETE clears them, GET lists all."""

    def __init__(self, store: Store, faults: Faults, resources: handlers.Handlers) -> None:
        self._store = store
        self._faults = faults
        self._resources = resources

    async def handle(self, request: Request) -> Response:
        parts = request.url.path.strip("/").split("/")[2:]
        if parts == ["compact"] and request.method == "POST":
            return self._compact(request)
        if parts[:1] != ["faults"]:
            raise statuses.no_such_path()
        if request.method == "PUT":
            self._setter(parts[1:])(await queries.body_of(request))
        elif request.method == "DELETE":
            self._clear(parts[1:])
        elif request.method != "GET":
            raise statuses.method_not_allowed()
        return queries.answer(self._faults.as_json())

    def _setter(self, parts: list[str]) -> Callable[[Any], None]:
        match parts:
            case ["nodes", name]:
                return lambda body: self._faults.set_node(name, body)
            case ["pods", namespace, name]:
                return lambda body: self._faults.set_pod(namespace, name, body)
            case ["images"]:
                return self._faults.set_images
            case ["admission"]:
                return self._faults.set_admission
        raise statuses.no_such_path()

    def _clear(self, parts: list[str]) -> None:
        if parts:
            self._setter(parts)({})
        else:
            self._faults.clear()

    def _compact(self, request: Request) -> Response:
        """`?expired=http`: later watches from before now fail as HTTP errors, not as ERROR events."""
        self._resources.expired_as_http_error = request.query_params.get("expired") == "http"
        return queries.answer({"compactedTo": str(self._store.compact())})
