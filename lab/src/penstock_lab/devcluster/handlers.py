"""The verbs of the resource API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive

from penstock_lab.devcluster import apirequests, kindtable, patches, podlogs, statuses, tables, watches
from penstock_lab.devcluster.agent import Agents
from penstock_lab.devcluster.apirequests import Target, answer
from penstock_lab.devcluster.faults import Faults
from penstock_lab.devcluster.objects import DeleteOptions, Objects
from penstock_lab.devcluster.objectstore import Entry
from penstock_lab.devcluster.statuses import ApiError, Json


class Handlers:
    def __init__(self, objects: Objects, agents: Agents, faults: Faults) -> None:
        self._objects = objects
        self._store = objects.store
        self._agents = agents
        self._faults = faults
        self._managers: dict[str, dict[str, patches.Fields]] = {}  # by uid and manager: applied fields
        self.stopping = asyncio.Event()

    async def handle(self, request: Request, target: Target) -> Response:
        verb, name, part = apirequests.verb_of(request, target), target.name, target.subresource
        if part == "log" and verb == "get":
            return self._log(request, target)
        if verb in apirequests.READING:
            return {"get": self._get, "list": self._list, "watch": self._watch}[verb](request, target)
        if verb == "create" and (not name or part in ("binding", "eviction")):
            return await self._create(request, target)
        if verb == "delete":
            return await self._delete(request, target)
        if verb in ("update", "patch") and name:
            return await (self._update if verb == "update" else self._patch)(request, target)
        raise ApiError(*statuses.BAD_METHOD)

    def _entry(self, target: Target) -> Entry:
        return self._objects.get(target.kind, target.home, target.name)

    def _get(self, request: Request, target: Target) -> Response:
        entry = self._entry(target)
        return answer(tables.table(entry.kind, [entry]) if tables.is_wanted(request) else entry.raw)

    def _list(self, request: Request, target: Target) -> Response:
        matches, query = _selector(request), request.query_params
        version, after = self._store.version, ("", "")
        if query.get("continue"):
            version, after = _continued(query["continue"])
            self._store.check_known(version)
        found = [
            entry
            for entry in self._store.all(target.kind, target.namespace)
            if entry.key > after and matches(entry.obj)
        ]
        limit = apirequests.number(request, "limit") or 0
        metadata: Json = {"resourceVersion": str(version)}
        if 0 < limit < len(found):
            token = "/".join((str(version), *found[limit - 1].key))
            metadata |= {"remainingItemCount": len(found) - limit, "continue": token}
            found = found[:limit]
        if tables.is_wanted(request):
            return answer(tables.table(target.kind, found, metadata))
        head = {
            "kind": f"{target.kind.kind}List",
            "apiVersion": target.kind.api_version,
            "metadata": metadata,
        }
        items = b",".join(entry.raw for entry in found)
        return answer(msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}")

    def _watch(self, request: Request, target: Target) -> Response:
        if apirequests.is_true(request, "sendInitialEvents"):
            raise ApiError(422, "Invalid", "sendInitialEvents: Forbidden: not supported by this server")
        wish = watches.WatchRequest(
            target.kind,
            target.namespace,
            apirequests.number(request, "resourceVersion") or 0,
            _selector(request),
            apirequests.is_true(request, "allowWatchBookmarks"),
            apirequests.number(request, "timeoutSeconds") or watches.LONGEST,
            target.name,
        )
        render = tables.row_of if tables.is_wanted(request) else lambda entry: entry.raw
        events = watches.watch(self._store, wish, render)
        return _Stream(events, "application/json;stream=watch", self.stopping)

    async def _create(self, request: Request, target: Target) -> Response:
        if target.subresource:
            return await self._decide(request, target)
        obj = await apirequests.object_of(request, target.kind)
        if target.kind.namespaced and target.namespace is None:
            raise ApiError(*statuses.BAD_METHOD)
        if target.kind is kindtable.PODS:
            self._faults.check_admission(obj)
        dry_run = apirequests.is_dry_run(request)
        return answer(self._objects.create(target.kind, target.home, obj, dry_run=dry_run).raw, 201)

    async def _decide(self, request: Request, target: Target) -> Response:
        obj, entry = await apirequests.object_of(request), self._entry(target)
        options = obj.get("deleteOptions") or {}
        if target.subresource == "binding":
            node = (obj.get("target") or {}).get("name")
            if not node:
                raise statuses.invalid(target.kind, target.name, "target.name", "Required value")
            uid = (obj.get("metadata") or {}).get("uid")
            self._objects.bind(entry, node, uid=uid, dry_run=apirequests.is_dry_run(request))
        elif not apirequests.is_dry_run(request, options):
            mark = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
            marked = self._objects.set_condition(entry, {**mark, "message": "Eviction API: evicting"})
            self._objects.delete(marked, apirequests.delete_options(options, request))
        return answer(statuses.success(target.kind, target.name, entry.uid, 201), 201)

    async def _update(self, request: Request, target: Target) -> Response:
        obj = await apirequests.object_of(request, target.kind)
        if (obj.get("metadata") or {}).get("name", target.name) != target.name:
            raise statuses.bad_request("the name of the object does not match the name on the URL")
        return self._replace(request, target, obj)

    def _replace(self, request: Request, target: Target, obj: Json) -> Response:
        dry_run, part = apirequests.is_dry_run(request), target.subresource
        return answer(self._objects.update(self._entry(target), obj, subresource=part, dry_run=dry_run).raw)

    async def _patch(self, request: Request, target: Target) -> Response:
        body = await apirequests.body_of(request)
        content_type = request.headers.get("content-type", "").partition(";")[0].strip()
        if content_type == "application/apply-patch+yaml":
            return self._apply(request, target, body)
        old = self._entry(target).copy()
        if content_type == "application/json-patch+json":
            new = patches.json_patch(old, body)
        elif content_type == "application/strategic-merge-patch+json" and target.kind.builtin:
            new = patches.strategic(old, body)
        elif content_type in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
            new = patches.merge(old, body)
        else:
            raise statuses.unsupported_media_type(content_type)
        if not isinstance(new, dict):
            raise statuses.bad_request("the patch does not leave an object")
        return self._replace(request, target, new)

    def _apply(self, request: Request, target: Target, body: object) -> Response:
        manager, dry_run = request.query_params.get("fieldManager", ""), apirequests.is_dry_run(request)
        if not manager or not isinstance(body, dict):
            raise statuses.bad_request("server-side apply needs a fieldManager and an object")
        wanted = {**body, "metadata": {**(body.get("metadata") or {}), "name": target.name}}
        said = patches.fields(wanted)
        entry = self._store.get(target.kind, target.home, target.name)
        managers = self._managers.get(entry.uid, {}) if entry else {}
        known = {name: dict(theirs) for name, theirs in managers.items()}
        if entry is None:
            copied = msgspec.json.decode(msgspec.json.encode(wanted))
            new = self._objects.create(target.kind, target.home, copied, dry_run=dry_run)
        else:
            merged = patches.apply(entry, manager, wanted, known, force=apirequests.is_true(request, "force"))
            new = self._objects.update(entry, merged, subresource=target.subresource, dry_run=dry_run)
        if not dry_run:
            self._managers[new.uid] = {**known, manager: said}
        return answer(new.raw, 200 if entry else 201)

    async def _delete(self, request: Request, target: Target) -> Response:
        body = await apirequests.body_of(request) or {}
        options = apirequests.delete_options(body, request)
        dry_run = apirequests.is_dry_run(request, body)
        if target.name:
            return self._delete_one(self._entry(target), options, dry_run)
        if target.kind.namespaced and target.namespace is None:
            raise ApiError(*statuses.BAD_METHOD)
        matches = _selector(request)
        for entry in self._store.all(target.kind, target.namespace):
            if matches(entry.obj):
                self._delete_one(entry, options, dry_run)
        return answer(statuses.success(target.kind, "", ""))

    def _delete_one(self, entry: Entry, options: DeleteOptions, dry_run: bool) -> Response:
        final = entry if dry_run else self._objects.delete(entry, options)
        if self._store.get(entry.kind, *entry.key) is None:
            self._managers.pop(entry.uid, None)
            if entry.kind is not kindtable.PODS:
                return answer(statuses.success(entry.kind, entry.key[1], entry.uid))
        return answer(final.raw)

    def _log(self, request: Request, target: Target) -> Response:
        entry = self._entry(target)
        spec = entry.obj["spec"]
        containers = [str(one["name"]) for one in spec["containers"]]
        names = [*(str(one["name"]) for one in spec.get("initContainers") or ()), *containers]
        name = request.query_params.get("container") or (containers[0] if len(containers) == 1 else "")
        if name not in names:
            asked = f"container {name} is not valid" if name else "a container name must be specified"
            raise statuses.bad_request(f"{asked} for pod {target.name}, choose one of: {names}")
        if not entry.obj["spec"].get("nodeName"):
            return Response(status_code=204)
        log = self._agents.log_of(entry.uid, name)
        if log is None:
            why = f'container "{name}" in pod "{target.name}" is waiting to start'
            raise statuses.bad_request(why)
        given = {name for name, value in request.query_params.items() if value != "false"}
        if unknown := sorted(_NOT_OF_LOGS & given):
            raise statuses.bad_request(f"the dev cluster keeps no logs with {' or '.join(unknown)}")
        tail, limit = apirequests.number(request, "tailLines"), apirequests.number(request, "limitBytes")
        follow = apirequests.is_true(request, "follow")
        written = podlogs.stream(log, follow=follow, tail=tail, limit=limit)
        return _Stream(written, "text/plain", self.stopping)


_NOT_OF_LOGS: Final = {"previous", "sinceSeconds", "sinceTime", "timestamps"}


class _Stream(StreamingResponse):
    """A streamed response that ends as soon as the client leaves or the server stops."""

    def __init__(
        self, content: AsyncGenerator[bytes, None], media_type: str, stopping: asyncio.Event
    ) -> None:
        super().__init__(content, media_type=media_type)
        self._stopping = stopping

    async def listen_for_disconnect(self, receive: Receive) -> None:
        left, stopped = super().listen_for_disconnect(receive), self._stopping.wait()
        ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(end) for end in (left, stopped)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()


def _selector(request: Request) -> watches.Predicate:
    query = request.query_params
    return watches.selector(query.get("labelSelector", ""), query.get("fieldSelector", ""))


def _continued(token: str) -> tuple[int, tuple[str, str]]:
    try:
        version, namespace, name = token.split("/")  # names contain no slash
        return int(version), (namespace, name)
    except ValueError as error:
        raise statuses.bad_request(f"continue key is not valid: {error}") from error
