"""What a request says: its verb, its query parameters, its body; and how an answer is made."""

from __future__ import annotations

import base64
import binascii
import time
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.devcluster import logs, protobuf, routing, statuses, times
from penstock.devcluster.objects import DeleteOptions
from penstock.devcluster.statuses import Json
from penstock.devcluster.store import Entry

_JSON: Final = "application/json"
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def answer(body: bytes | Json, code: int = 200) -> Response:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Response(raw, status_code=code, media_type=_JSON)


def verb_of(request: Request, target: routing.Target) -> str:
    """The verb as RBAC names it."""
    if request.method == "GET":
        if is_true(request, "watch"):
            return "watch"
        return "get" if target.name else "list"
    return _VERBS.get(request.method, request.method.lower())


def is_true(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() in ("1", "true")


def number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text in (None, ""):
        return None
    try:
        return int(str(text))
    except ValueError as error:
        raise statuses.bad_request(f"{name}: not a whole number: {text!r}") from error


async def body_of(request: Request) -> Any:
    raw = await request.body()
    if raw.startswith(protobuf.MAGIC):
        return protobuf.decode(raw)
    try:
        return msgspec.json.decode(raw) if raw.strip() else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise statuses.bad_request(f"the body is not JSON: {error}") from error


async def object_of(request: Request) -> Json:
    body = await body_of(request)
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        raise statuses.bad_request("the body of the request must be one object")
    return body


def log_wish(request: Request) -> logs.Wish:
    since: float | None = None
    seconds, moment = number(request, "sinceSeconds"), request.query_params.get("sinceTime")
    if seconds is not None:
        since = time.time() - seconds
    elif moment:
        since = times.parse(moment)
    return logs.Wish(
        follow=is_true(request, "follow"),
        tail=number(request, "tailLines"),
        since=since,
        limit=number(request, "limitBytes"),
        timestamps=is_true(request, "timestamps"),
    )


def is_dry_run(request: Request) -> bool:
    wanted = request.query_params.get("dryRun", "")
    if wanted not in ("", "All"):
        raise statuses.ApiError(
            422, "Invalid", f'dryRun: Unsupported value: "{wanted}": supported values: "All"'
        )
    return wanted == "All"


def check_type(target: routing.Target, obj: Json) -> None:
    """An object sent to the wrong address is refused; one that does not say what it is, is not."""
    kind, said = target.kind, (obj.get("apiVersion"), obj.get("kind"))
    if said[0] not in (None, "", kind.api_version) or said[1] not in (None, "", kind.kind):
        raise statuses.bad_request(
            f"{said[0]}, Kind={said[1]} does not match the expected {kind.api_version}, Kind={kind.kind}"
        )


def delete_options(body: Json, request: Request | None = None) -> DeleteOptions:
    query = request.query_params if request else {}
    conditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    propagation = body.get("propagationPolicy") or query.get("propagationPolicy") or "Background"
    return DeleteOptions(
        grace=int(grace) if grace is not None else None,
        uid=conditions.get("uid"),
        version=conditions.get("resourceVersion"),
        propagation=propagation,
    )


def continue_token(version: int, last: Entry) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([version, *last.key])).decode()


def continued(token: str) -> tuple[int, tuple[str, str]]:
    try:
        version, namespace, name = msgspec.json.decode(
            base64.urlsafe_b64decode(token), type=tuple[int, str, str]
        )
    except (binascii.Error, ValueError) as error:
        raise statuses.bad_request(f"continue key is not valid: {error}") from error
    return version, (namespace, name)
