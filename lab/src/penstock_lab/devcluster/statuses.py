"""Error responses as Kubernetes words them: clients act on code, reason and details."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock_lab.devcluster.kindtable import Kind

Json = dict[str, Any]
STATUS: Final[Json] = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
NO_SUCH_PATH: Final = (404, "NotFound", "the server could not find the requested resource")
BAD_METHOD: Final = (405, "MethodNotAllowed", "the server does not allow this method on the resource")


class ApiError(Exception):
    """Sent to the client as a failure Status."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    def body(self) -> Json:
        about = {"message": self.message, "reason": self.reason, "details": self.details, "code": self.code}
        return {**STATUS, "status": "Failure", **about}


def success(kind: Kind, name: str, uid: str, code: int = 200) -> Json:
    """The Status of a removed object, or of a successful request without another response."""
    return {**STATUS, "status": "Success", "details": {**about(kind, name), "uid": uid}, "code": code}


def about(kind: Kind, name: str) -> Json:
    return {"name": name, "group": kind.group, "kind": kind.plural}


def not_found(kind: Kind, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{kind.qualified} "{name}" not found', about(kind, name))


def already_exists(kind: Kind, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{kind.qualified} "{name}" already exists', about(kind, name))


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, about(kind, name))


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    return ApiError(403, "Forbidden", f'{kind.qualified} "{name}" is forbidden: {why}', about(kind, name))


def invalid(kind: Kind, name: str, field: str, why: str) -> ApiError:
    cause = {"reason": "FieldValueInvalid", "message": why, "field": field}
    details = {**about(kind, name), "kind": kind.kind, "causes": [cause]}
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return ApiError(422, "Invalid", f'{qualified} "{name}" is invalid: {field}: {why}', details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unsupported_media_type(content_type: str) -> ApiError:
    message = f"the body of the request was in an unknown format: {content_type or 'none given'}"
    return ApiError(415, "UnsupportedMediaType", message)
