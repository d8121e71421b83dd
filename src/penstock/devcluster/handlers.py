"""The verbs of the resource API: HTTP requests to calls of Objects, and entries to answers."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.devcluster import (
    kinds,
    logs,
    patches,
    queries,
    routing,
    selectors,
    statuses,
    tables,
    times,
    watching,
)
from penstock.devcluster.agent import Agents
from penstock.devcluster.apply import Applier
from penstock.devcluster.collector import Collector
from penstock.devcluster.faults import Faults
from penstock.devcluster.objects import DeleteOptions, Objects
from penstock.devcluster.statuses import Json
from penstock.devcluster.store import Entry
from penstock.devcluster.streams import Streams


class Handlers:
    """One method per verb."""

    def __init__(
        self, objects: Objects, agents: Agents, collector: Collector, streams: Streams, faults: Faults
    ) -> None:
        self._objects = objects
        self._store = objects.store
        self._agents = agents
        self._collector = collector
        self._streams = streams
        self._faults = faults
        self._applier = Applier(objects.store)
        self.expired_as_http_error = False

    async def handle(self, request: Request, target: routing.Target) -> Response:
        verb = queries.verb_of(request, target)
        if target.subresource == "log" and verb == "get":
            return self._log(request, target)
        if verb in ("get", "list", "watch"):
            return {"get": self._get, "list": self._list, "watch": self._watch}[verb](request, target)
        if verb == "create" and (not target.name or target.subresource in ("binding", "eviction")):
            return await self._create(request, target)
        if verb == "delete":
            return await self._delete(request, target)
        if verb in ("update", "patch") and target.name:
            return await (self._update if verb == "update" else self._patch)(request, target)
        raise statuses.method_not_allowed()

    def _entry(self, target: routing.Target) -> Entry:
        return self._objects.get(target.kind, target.home, target.name)

    def _get(self, request: Request, target: routing.Target) -> Response:
        entry = self._entry(target)
        if tables.is_wanted(request.headers.get("accept", "")):
            return queries.answer(tables.of(target.kind, [entry], str(entry.version)))
        return queries.answer(entry.raw)

    def _list(self, request: Request, target: routing.Target) -> Response:
        query = request.query_params
        matches = selectors.both(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        version, found = self._store.version, self._store.all(target.kind, target.namespace)
        if query.get("continue"):
            version, after = queries.continued(query["continue"])
            self._store.check_known(version)
            found = [entry for entry in found if entry.key > after]
        if matches:
            found = [entry for entry in found if matches(entry.obj)]
        limit = queries.number(request, "limit") or 0
        metadata: Json = {"resourceVersion": str(version)}
        if 0 < limit < len(found):
            metadata.update(remainingItemCount=len(found) - limit)
            found = found[:limit]
            metadata["continue"] = queries.continue_token(version, found[-1])
        if tables.is_wanted(request.headers.get("accept", "")):
            return queries.answer(tables.of(target.kind, found, str(version), metadata))
        head = {
            "kind": f"{target.kind.kind}List",
            "apiVersion": target.kind.api_version,
            "metadata": metadata,
        }
        items = b",".join(entry.raw for entry in found)
        return queries.answer(msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}")

    def _watch(self, request: Request, target: routing.Target) -> Response:
        query = request.query_params
        if queries.is_true(request, "sendInitialEvents"):
            raise statuses.ApiError(
                422, "Invalid", "sendInitialEvents: Forbidden: not supported by this server"
            )
        timeout = queries.number(request, "timeoutSeconds")
        wish = watching.WatchRequest(
            target.kind,
            target.namespace,
            query.get("resourceVersion", ""),
            selectors.both(query.get("labelSelector", ""), query.get("fieldSelector", "")),
            queries.is_true(request, "allowWatchBookmarks"),
            float(timeout) if timeout else watching.LONGEST,
            target.name,
        )
        as_table = tables.is_wanted(request.headers.get("accept", ""))
        try:
            lines = watching.Watch(
                self._store, wish, tables.row_of if as_table else lambda entry: entry.raw
            ).lines()
        except statuses.ApiError as refusal:
            if refusal.code != 410 or self.expired_as_http_error:
                raise
            lines = watching.refused(refusal)
        return self._streams.answer(lines, "application/json;stream=watch")

    async def _create(self, request: Request, target: routing.Target) -> Response:
        obj, dry_run = await queries.object_of(request), queries.is_dry_run(request)
        if target.subresource == "binding":
            return self._bind(target, obj, dry_run)
        if target.subresource == "eviction":
            return self._evict(target, obj)
        if target.kind.namespaced and target.namespace is None:
            raise statuses.method_not_allowed()
        queries.check_type(target, obj)
        if target.kind is kinds.PODS:
            self._faults.check_admission(obj)
        return queries.answer(self._objects.create(target.kind, target.home, obj, dry_run=dry_run).raw, 201)

    def _bind(self, target: routing.Target, binding: Json, dry_run: bool) -> Response:
        node = (binding.get("target") or {}).get("name")
        if not node:
            raise statuses.invalid(target.kind, target.name, "target.name", "Required value")
        uid = (binding.get("metadata") or {}).get("uid")
        bound = self._objects.bind(self._entry(target), node, uid=uid, dry_run=dry_run)
        return queries.answer(statuses.success(target.kind, target.name, bound.uid, 201), 201)

    def _evict(self, target: routing.Target, eviction: Json) -> Response:
        entry = self._entry(target)
        entry = self._objects.set_status(target.kind, entry, _disrupted(entry.obj.get("status") or {}))
        self._objects.delete(target.kind, entry, queries.delete_options(eviction.get("deleteOptions") or {}))
        return queries.answer(statuses.success(target.kind, target.name, entry.uid, 201), 201)

    async def _update(self, request: Request, target: routing.Target) -> Response:
        obj = await queries.object_of(request)
        queries.check_type(target, obj)
        if (obj.get("metadata") or {}).get("name", target.name) != target.name:
            raise statuses.bad_request("the name of the object does not match the name on the URL")
        entry = self._entry(target)
        new = self._objects.update(
            target.kind, entry, obj, subresource=target.subresource, dry_run=queries.is_dry_run(request)
        )
        return queries.answer(new.raw)

    async def _patch(self, request: Request, target: routing.Target) -> Response:
        body, dry_run = await queries.body_of(request), queries.is_dry_run(request)
        content_type = request.headers.get("content-type", "").partition(";")[0].strip()
        if content_type == "application/apply-patch+yaml":
            return self._apply(request, target, body, dry_run)
        entry = self._entry(target)
        old = entry.copy()
        if content_type == "application/json-patch+json":
            new = patches.json_patch(old, body)
        elif content_type == "application/merge-patch+json" or (
            content_type == "application/strategic-merge-patch+json" and not target.kind.builtin
        ):
            new = patches.merge(old, body)
        elif content_type == "application/strategic-merge-patch+json":
            new = patches.strategic(old, body)
        else:
            raise statuses.unsupported_media_type(content_type)
        if not isinstance(new, dict):
            raise statuses.bad_request("the patch does not leave an object")
        new = self._objects.update(
            target.kind, entry, new, subresource=target.subresource, dry_run=dry_run
        ).raw
        return queries.answer(new)

    def _apply(self, request: Request, target: routing.Target, body: Any, dry_run: bool) -> Response:
        manager = request.query_params.get("fieldManager", "")
        if not manager or not isinstance(body, dict):
            raise statuses.bad_request("server-side apply needs a fieldManager and an object")
        wanted = {**body, "metadata": {**(body.get("metadata") or {}), "name": target.name}}
        entry = self._store.get(target.kind, target.home, target.name)
        if entry is None:
            made = self._objects.create(
                target.kind, target.home, msgspec.json.decode(msgspec.json.encode(wanted)), dry_run=dry_run
            )
            self._applier.remember(made.uid, manager, wanted, dry_run=dry_run)
            return queries.answer(made.raw, 201)
        new = self._applier.merge(entry, manager, wanted, force=queries.is_true(request, "force"))
        updated = self._objects.update(
            target.kind, entry, new, subresource=target.subresource, dry_run=dry_run
        )
        self._applier.remember(entry.uid, manager, wanted, dry_run=dry_run)
        return queries.answer(updated.raw)

    async def _delete(self, request: Request, target: routing.Target) -> Response:
        body = await queries.body_of(request) or {}
        if not isinstance(body, dict):
            raise statuses.bad_request("DeleteOptions must be an object")
        options = queries.delete_options(body, request)
        dry_run = queries.is_dry_run(request) or body.get("dryRun") == ["All"]
        if target.name:
            return self._delete_one(self._entry(target), options, dry_run)
        if target.kind.namespaced and target.namespace is None:
            raise statuses.method_not_allowed()
        query = request.query_params
        matches = selectors.both(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        for entry in self._store.all(target.kind, target.namespace):
            if matches is None or matches(entry.obj):
                self._delete_one(entry, options, dry_run)
        return queries.answer(statuses.success(target.kind, "", ""))

    def _delete_one(self, entry: Entry, options: DeleteOptions, dry_run: bool) -> Response:
        if dry_run:
            return queries.answer(entry.raw)
        if options.propagation == "Orphan":
            self._collector.orphan(entry)
        final = self._objects.delete(entry.kind, entry, options)
        gone = self._store.get(entry.kind, *entry.key) is None
        if gone and entry.kind is not kinds.PODS:
            return queries.answer(statuses.success(entry.kind, entry.key[1], entry.uid))
        return queries.answer(final.raw)

    def _log(self, request: Request, target: routing.Target) -> Response:
        entry = self._entry(target)
        containers = [*(entry.obj["spec"].get("initContainers") or ()), *entry.obj["spec"]["containers"]]
        names = [str(one["name"]) for one in containers]
        name = request.query_params.get("container") or (names[0] if len(names) == 1 else "")
        if name not in names:
            why = f"a container name must be specified for pod {target.name}, choose one of: {names}"
            raise statuses.bad_request(
                why if not name else f"container {name} is not valid for pod {target.name}"
            )
        if not entry.obj["spec"].get("nodeName"):
            return Response(status_code=204)
        log = self._agents.log_of(entry.uid, name, previous=queries.is_true(request, "previous"))
        if log is None:
            what = "previous terminated container" if queries.is_true(request, "previous") else "container"
            raise statuses.bad_request(
                f'{what} "{name}" in pod "{target.name}" is waiting to start or not found'
            )
        return self._streams.answer(logs.stream(log, queries.log_wish(request)), "text/plain")


def _disrupted(status: Json) -> Json:
    """A pod's status with the mark that the cluster, not its owner, ends it."""
    mark = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": times.now(),
    }
    others = [one for one in status.get("conditions", ()) if one["type"] != mark["type"]]
    return {**status, "conditions": [*others, mark]}
