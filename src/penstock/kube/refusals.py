"""From the API's refusals to errors of ours."""

from __future__ import annotations

import re
from typing import NoReturn

import msgspec

from penstock import errors
from penstock.kube import types

_ERRORS: dict[int, type[errors.KubeError]] = {
    404: errors.KubeNotFound,
    409: errors.KubeConflict,
    410: errors.KubeGone,
    429: errors.KubeUnavailable,
}


_NO_RIGHT = re.compile(r'User "[^"]*" cannot \w+ ')
"""How the API server's authorizer says no; admission (quota, webhooks, Pod Security) has other words."""


def raise_for(body: bytes, code: int) -> NoReturn:
    """The error that an HTTP answer means."""
    try:
        status = msgspec.json.decode(body, type=types.ApiStatus)
    except msgspec.MsgspecError:
        status = types.ApiStatus(message=body.decode(errors="replace")[:200])
    raise_status(status, code)


def raise_status(status: types.ApiStatus, code: int) -> NoReturn:
    """The error that a Status object means."""
    kind = _ERRORS.get(code, errors.KubeUnavailable if code >= 500 else errors.KubeError)
    if code == 403 and _NO_RIGHT.search(status.message):
        kind = errors.KubeNotAllowed
    raise kind(status.message or f"the Kubernetes API answered {code}", status=code, reason=status.reason)
