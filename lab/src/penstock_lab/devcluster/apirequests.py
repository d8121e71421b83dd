"""Parses requests: bearer token, path, verb, parameters and body."""

from __future__ import annotations

import csv
import hmac
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from penstock import errors
from penstock_lab.devcluster import protobuf, statuses
from penstock_lab.devcluster.kindtable import Kind, Registry
from penstock_lab.devcluster.objects import DeleteOptions
from penstock_lab.devcluster.statuses import ApiError, Json

GROUPS: Final = ("admin", "viewer")
READING: Final = ("get", "list", "watch")
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class Identity:
    """A token's user and group: admin may do everything, viewer may read all but secrets."""

    user: str
    group: str

    def may(self, verb: str, plural: str) -> bool:
        return self.group == "admin" or (verb in READING and plural != "secrets")


def read_tokens(path: Path) -> dict[str, Identity]:
    """Read lines `token,user,group`; raises UsageError."""
    try:
        rows = [[word.strip() for word in row] for row in csv.reader(path.read_text().split("\n")) if row]
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise errors.UsageError(f"tokens file {path}: {error}") from error
    for number, row in enumerate(rows, start=1):
        if len(row) != 3 or row[2] not in GROUPS or not row[0]:
            hint = "each line is token,user,group with group admin or viewer"
            raise errors.UsageError(f"tokens file {path}: entry {number} is invalid", hint=hint)
    return {token: Identity(user, group) for token, user, group in rows}


def identify(tokens: dict[str, Identity], connection: HTTPConnection) -> Identity:
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    for known, identity in tokens.items():
        if scheme.lower() == "bearer" and hmac.compare_digest(known.encode(), token.strip().encode()):
            return identity
    raise ApiError(401, "Unauthorized", "Unauthorized")


@dataclass(frozen=True, slots=True)
class Target:
    kind: Kind
    namespace: str | None  # None: all namespaces, or a cluster-scoped kind
    name: str = ""
    subresource: str = ""

    @property
    def home(self) -> str:
        """The namespace in the object's key."""
        return self.namespace or ""

    def authorize(self, who: Identity, verb: str) -> None:
        """Raise Forbidden, with RBAC's message, if the group may not do this."""
        if not who.may(verb, self.kind.plural):
            place = f' in the namespace "{self.namespace}"' if self.namespace else " at the cluster scope"
            what = f'resource "{self.kind.plural}" in API group "{self.kind.group}"{place}'
            raise statuses.forbidden(self.kind, self.name, f'User "{who.user}" cannot {verb} {what}')


def target_of(path: str, registry: Registry) -> Target:
    """Parse /api/v1/... or /apis/GROUP/VERSION/..., with or without a namespace; raises 404."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[1:]) if parts[0] == "api" else (parts[1] if len(parts) > 1 else "", parts[2:])
    version, *rest = rest or [""]
    namespace = None
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2:] not in (["status"], ["finalize"]):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *more = (*rest, "", "", "")[: max(3, len(rest))]
    kind = registry.get((group, version, plural)) if parts[0] in ("api", "apis") else None
    if kind is None or more or (subresource and subresource not in kind.subresources):
        raise ApiError(*statuses.NO_SUCH_PATH)
    if kind.namespaced != (namespace is not None) and (name or namespace is not None):
        raise ApiError(*statuses.NO_SUCH_PATH)
    return Target(kind, namespace, name, subresource)


def verb_of(request: Request, target: Target) -> str:
    if request.method == "GET":
        return "watch" if is_true(request, "watch") else "get" if target.name else "list"
    return _VERBS.get(request.method, request.method.lower())


def is_true(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() in ("1", "true")


def number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name) or None
    try:
        return None if text is None else int(text)
    except ValueError as error:
        raise statuses.bad_request(f"{name}: not a whole number: {text!r}") from error


def is_dry_run(request: Request, options: Json | None = None) -> bool:
    """From the query or, for deletions, the options."""
    wanted = request.query_params.get("dryRun") or "".join((options or {}).get("dryRun") or ())
    if wanted not in ("", "All"):
        raise ApiError(422, "Invalid", f'dryRun: Unsupported value: "{wanted}": supported values: "All"')
    return wanted == "All"


async def body_of(request: Request) -> Any:
    raw = await request.body()
    if raw.startswith(protobuf.MAGIC):
        return protobuf.decode(raw)
    try:
        return msgspec.json.decode(raw) if raw.strip() else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise statuses.bad_request(f"the body is not JSON: {error}") from error


async def object_of(request: Request, kind: Kind | None = None) -> Json:
    """The object in the body; raises if it is of another kind than the path's."""
    body = await body_of(request)
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        raise statuses.bad_request("the body of the request must be one object")
    said = (body.get("apiVersion") or None, body.get("kind") or None)
    if kind and (said[0] not in (None, kind.api_version) or said[1] not in (None, kind.kind)):
        expected = f"{kind.api_version}, Kind={kind.kind}"
        raise statuses.bad_request(f"{said[0]}, Kind={said[1]} does not match the expected {expected}")
    return body


def delete_options(body: Any, request: Request) -> DeleteOptions:
    if not isinstance(body, dict):
        raise statuses.bad_request("DeleteOptions must be an object")
    if "Orphan" in (body.get("propagationPolicy"), request.query_params.get("propagationPolicy")):
        raise ApiError(422, "Invalid", "propagationPolicy: Orphan is not supported by the dev cluster")
    conditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds", number(request, "gracePeriodSeconds"))
    return DeleteOptions(grace, conditions.get("uid"), conditions.get("resourceVersion"))


def answer(body: bytes | Json, code: int = 200) -> Response:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Response(raw, status_code=code, media_type="application/json")
