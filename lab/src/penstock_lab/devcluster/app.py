"""A dev cluster: its parts, the HTTP application and the web server."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import logging
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from penstock_lab.devcluster import agent, apirequests, discovery, kindtable, podexec, statuses
from penstock_lab.devcluster.apirequests import Identity, answer
from penstock_lab.devcluster.faults import Faults
from penstock_lab.devcluster.garbage import Collector
from penstock_lab.devcluster.handlers import Handlers
from penstock_lab.devcluster.nodeobjects import NodeSpec
from penstock_lab.devcluster.objects import PROTECTED_NAMESPACES, Objects
from penstock_lab.devcluster.objectstore import Store
from penstock_lab.devcluster.scheduler import Scheduler
from penstock_lab.devcluster.statuses import ApiError, Json

_EXEC: Final = "/api/v1/namespaces/{namespace}/pods/{name}/exec"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/"
_METHODS: Final = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    data_dir: Path
    port: int
    tokens: dict[str, Identity]
    nodes: list[NodeSpec] = field(default_factory=list)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    backoff: float = agent.BACKOFF


class _Server(uvicorn.Server):
    """uvicorn without polling: waits for an event instead of checking ten times a second whether to stop."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._stopping = stopping

    async def main_loop(self) -> None:
        self.ready.set()
        await self._stopping.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Cluster:
    """Runs in one event loop, so the code between two awaits is atomic."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._registry, self._faults = kindtable.Registry(), Faults()
        self._objects = Objects(Store(), holds_deletion=self._faults.is_stuck)
        Collector(self._objects, self._registry)
        Scheduler(self._objects)
        self._agents = agent.Agents(
            self._objects, self._faults, settings.nodes, settings.data_dir, backoff=settings.backoff
        )
        self._handlers = Handlers(self._objects, self._agents, self._faults)
        open_to_all = [Route(path, self._health) for path in ("/readyz", "/livez", "/healthz", "/version")]
        rest = [WebSocketRoute(_EXEC, self._exec), Route("/{path:path}", self._guarded, methods=_METHODS)]
        self._server = _Server(
            uvicorn.Config(
                Starlette(routes=[*open_to_all, *rest]),
                host="127.0.0.1",
                port=settings.port,
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
                lifespan="off",
                loop="asyncio",
                http="h11",
                ws="wsproto",
                access_log=False,
                log_config=None,
                date_header=False,
                timeout_keep_alive=600,
                timeout_graceful_shutdown=1,
            ),
            self._handlers.stopping,
        )

    def stop(self) -> None:
        self._handlers.stopping.set()

    async def ready(self) -> None:
        await self._server.ready.wait()

    async def run(self) -> None:
        """Serve until stopped; then remove all processes, mounts and cgroups."""
        for name in (*PROTECTED_NAMESPACES, "kube-public", "kube-node-lease"):
            self._objects.create(kindtable.NAMESPACES, "", {"metadata": {"name": name}})
        self._agents.start()
        try:
            await self._server._serve()
        finally:
            await self._agents.stop()

    async def _health(self, request: Request) -> Response:
        if request.url.path != "/version":
            return PlainTextResponse("ok")
        found = answer(discovery.VERSION)
        found.headers["date"] = email.utils.formatdate(
            usegmt=True
        )  # uvicorn's own is updated by the polling that _Server has not
        return found

    async def _exec(self, socket: WebSocket) -> None:
        """pods/exec; an error is sent as an HTTP response in place of the upgrade."""
        try:
            who = apirequests.identify(self._settings.tokens, socket)
            target = apirequests.target_of(socket.url.path.removesuffix("/exec"), self._registry)
            target.authorize(who, "create")
            pod = self._objects.get(target.kind, target.home, target.name)
            await podexec.serve(socket, pod, self._agents)
        except ApiError as refusal:
            await socket.send_denial_response(answer(refusal.body(), refusal.code))

    async def _guarded(self, request: Request) -> Response:
        try:
            return await self._dispatch(request, apirequests.identify(self._settings.tokens, request))
        except ApiError as refusal:
            return answer(refusal.body(), refusal.code)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            _logger.exception("%s %s", request.method, request.url.path)
            why = f"the object does not have the expected shape: {type(error).__name__}: {error}"
            return answer(statuses.bad_request(why).body(), 400)

    async def _dispatch(self, request: Request, who: Identity) -> Response:
        path = request.url.path
        if path.startswith("/devcluster/v1/"):
            if who.group != "admin":
                raise ApiError(403, "Forbidden", "the admin API is for the group admin")
            return answer(await self._administer(request, path.strip("/").split("/")[2:]))
        if path == "/openapi/v2" and "protobuf" in request.headers.get("accept", ""):
            return Response(b"", media_type="application/octet-stream")  # an empty protobuf document
        if path.startswith(_REVIEWS) and request.method == "POST":
            return answer(self._review(path, who, await apirequests.object_of(request)), 201)
        document = discovery.answer(path, self._registry) if request.method == "GET" else None
        if document is not None:
            return answer(document)
        target = apirequests.target_of(path, self._registry)
        target.authorize(who, apirequests.verb_of(request, target))
        return await self._handlers.handle(request, target)

    def _review(self, path: str, who: Identity, question: Json) -> Json:
        """Answer a SelfSubjectAccessReview or SubjectAccessReview."""
        asked = question["spec"]["resourceAttributes"]
        if path == f"{_REVIEWS}subjectaccessreviews" and who.group == "admin":
            name = question["spec"]["user"]
            known = (one for one in self._settings.tokens.values() if one.user == name)
            who = next(known, Identity(name, "admin"))  # unknown service accounts may do everything
        elif path != f"{_REVIEWS}selfsubjectaccessreviews":
            raise ApiError(*statuses.NO_SUCH_PATH)
        return {**question, "status": {"allowed": who.may(asked["verb"], asked["resource"])}}

    async def _administer(self, request: Request, parts: list[str]) -> Json:
        """The admin API: PUT sets a fault, DELETE clears it; POST to compact drops the watch history."""
        if parts == ["compact"] and request.method == "POST":
            return {"compactedTo": str(self._objects.store.compact())}
        if parts[:1] != ["faults"]:
            raise ApiError(*statuses.NO_SUCH_PATH)
        if request.method == "PUT":
            self._faults.put(parts[1:], await apirequests.body_of(request))
        elif request.method == "DELETE":
            self._faults.put(parts[1:], {}) if parts[1:] else self._faults.clear()
        elif request.method != "GET":
            raise ApiError(*statuses.BAD_METHOD)
        return self._faults.as_json()


async def serve(settings: Settings) -> None:
    """Run a cluster until SIGTERM or SIGINT."""
    cluster = Cluster(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, cluster.stop)
    await cluster.run()
