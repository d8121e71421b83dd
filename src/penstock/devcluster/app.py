"""The HTTP application: who asks, which part answers, and every refusal as a Status."""

from __future__ import annotations

import email.utils
import logging
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from penstock.devcluster import auth, discovery, execs, handlers, kinds, queries, routing, statuses
from penstock.devcluster.admin import Admin
from penstock.devcluster.kinds import Registry

_METHODS: Final = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_logger = logging.getLogger(__name__)


class Application:
    """Routes requests; holds no state of its own."""

    def __init__(
        self,
        registry: Registry,
        resources: handlers.Handlers,
        admin: Admin,
        commands: execs.Execs,
        authenticator: auth.Authenticator,
    ) -> None:
        self._registry = registry
        self._resources = resources
        self._admin = admin
        self._commands = commands
        self._authenticator = authenticator

    def asgi(self) -> Starlette:
        open_to_all = [Route(path, self._health) for path in ("/readyz", "/livez", "/healthz")]
        version = Route("/version", self._version)
        rest = Route("/{path:path}", self._guarded, methods=_METHODS)
        commands = WebSocketRoute(execs.PATH, self._command)
        return Starlette(routes=[*open_to_all, version, commands, rest])

    async def _health(self, request: Request) -> Response:
        return PlainTextResponse("ok")

    async def _version(self, request: Request) -> Response:
        answer = queries.answer(discovery.VERSION)
        answer.headers["date"] = email.utils.formatdate(usegmt=True)  # uvicorn's stands still
        return answer

    async def _command(self, socket: WebSocket) -> None:
        """pods/exec: a refusal is an HTTP answer in place of the upgrade."""
        try:
            who = self._authenticator.identify(socket.headers.get("authorization", ""))
            namespace, name = socket.path_params["namespace"], socket.path_params["name"]
            auth.authorize(who, "create", kinds.PODS, namespace, name)
            await self._commands.serve(socket)
        except statuses.ApiError as refusal:
            await socket.send_denial_response(queries.answer(refusal.body(), refusal.code))

    async def _guarded(self, request: Request) -> Response:
        try:
            who = self._authenticator.identify(request.headers.get("authorization", ""))
            return await self._dispatch(request, who)
        except statuses.ApiError as refusal:
            return queries.answer(refusal.body(), refusal.code)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            _logger.exception("%s %s", request.method, request.url.path)
            why = f"the object does not have the expected shape: {type(error).__name__}: {error}"
            return queries.answer(statuses.ApiError(400, "BadRequest", why).body(), 400)

    async def _dispatch(self, request: Request, who: auth.Identity) -> Response:
        path = request.url.path
        if path.startswith("/devcluster/v1/"):
            if not who.is_admin:
                raise statuses.ApiError(403, "Forbidden", "the admin API is for the group admin")
            return await self._admin.handle(request)
        if path == "/openapi/v2":
            return _openapi2(request)
        if path == auth.REVIEWS and request.method == "POST":
            return queries.answer(auth.review(who, await request.json()), 201)
        if path == auth.ACCOUNT_REVIEWS and request.method == "POST" and who.is_admin:
            question = await request.json()
            about = self._authenticator.named(question["spec"]["user"])
            return queries.answer(auth.review(about, question), 201)
        document = discovery.answer(path, self._registry) if request.method == "GET" else None
        if document is not None:
            return queries.answer(document)
        target = routing.parse(path, self._registry)
        auth.authorize(who, queries.verb_of(request, target), target.kind, target.namespace, target.name)
        return await self._resources.handle(request, target)


def _openapi2(request: Request) -> Response:
    """Old kubectl asks for protobuf, in which an empty document has no bytes at all."""
    accept = request.headers.get("accept", "")
    if "protobuf" in accept:
        return Response(b"", media_type="application/octet-stream")
    info = {"title": "Penstock dev cluster", "version": "v1"}
    return queries.answer({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}})
