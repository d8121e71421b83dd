"""Refusals in Kubernetes' own words: clients act on code, reason and details, people read the message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.devcluster.kinds import Kind

Json = dict[str, Any]


class ApiError(Exception):
    """A request that is answered with a failure Status."""

    def __init__(self, code: int, reason: str, message: str, *, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    def body(self) -> Json:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


def success(kind: Kind, name: str, uid: str, code: int = 200) -> Json:
    """The Status that says an object is gone, or a request without an answer was accepted."""
    details = {"name": name, "group": kind.group, "kind": kind.plural, "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
        "code": code,
    }


def about(kind: Kind, name: str) -> Json:
    return {"name": name, "group": kind.group, "kind": kind.plural}


def not_found(kind: Kind, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{kind.qualified} "{name}" not found', details=about(kind, name))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(kind: Kind, name: str) -> ApiError:
    return ApiError(
        409, "AlreadyExists", f'{kind.qualified} "{name}" already exists', details=about(kind, name)
    )


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=about(kind, name))


def precondition(kind: Kind, name: str, what: str, wanted: str, found: str) -> ApiError:
    why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
    return conflict(kind, name, why)


def modified(kind: Kind, name: str) -> ApiError:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def invalid(kind: Kind, name: str, field: str, why: str) -> ApiError:
    cause = {"reason": "FieldValueInvalid", "message": why, "field": field}
    details = {"name": name, "group": kind.group, "kind": kind.kind, "causes": [cause]}
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return ApiError(422, "Invalid", f'{qualified} "{name}" is invalid: {field}: {why}', details=details)


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    return ApiError(
        403, "Forbidden", f'{kind.qualified} "{name}" is forbidden: {why}', details=about(kind, name)
    )


def expired(asked: int, oldest: int) -> ApiError:
    return ApiError(410, "Expired", f"too old resource version: {asked} ({oldest})")


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unsupported_media_type(content_type: str) -> ApiError:
    message = f"the body of the request was in an unknown format: {content_type or 'none given'}"
    return ApiError(415, "UnsupportedMediaType", message)


def method_not_allowed() -> ApiError:
    return ApiError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )
