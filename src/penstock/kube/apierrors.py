"""Maps the API's error answers, and missing answers, to our errors.

Only the API itself can say that something does not exist or is not allowed: a 404 or 403 without a Status
object comes from a proxy or load balancer, and nothing is known (KubeUnavailable). The same holds for 401,
and for the 403 of an API server that has just started: its admission forbids everything until its caches
are filled.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NoReturn

import httpx2
import msgspec

from penstock import errors
from penstock.kube import types
from penstock.model import numbers

LONGEST_WAIT = 30.0
_ERRORS: Mapping[int, type[errors.KubeError]] = {
    401: errors.KubeUnavailable,
    404: errors.KubeNotFound,
    409: errors.KubeConflict,
    410: errors.KubeGone,
    429: errors.KubeUnavailable,
}
_NO_RIGHT = re.compile(r'User "[^"]*" cannot \w+ ')
"""The authorizer's message; admission (quota, webhooks, Pod Security) uses other words."""
_NOT_READY = "not yet ready to handle request"


def raise_for(body: bytes, code: int, headers: Mapping[str, str] | None = None) -> NoReturn:
    """Raise the error for an HTTP answer."""
    try:
        status = msgspec.json.decode(body, type=types.ApiStatus)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        status = types.ApiStatus(message=body.decode(errors="replace")[:200])
    if code in (403, 404) and status.kind != "Status":
        raise errors.KubeUnavailable(f"answer {code} does not come from the Kubernetes API", status=code)
    seconds = numbers.natural((headers or {}).get("Retry-After", ""))
    raise_status(status, code, wait=min(float(seconds or 0), LONGEST_WAIT))


def raise_status(status: types.ApiStatus, code: int, *, wait: float = 0.0) -> NoReturn:
    """Raise the error for a Status object."""
    is_refusal = 400 <= code < 500
    kind = _ERRORS.get(code, errors.KubeError if is_refusal else errors.KubeUnavailable)
    if code == 403 and _NO_RIGHT.search(status.message):
        kind = errors.KubeNotAllowed
    elif code == 403 and status.message.endswith(_NOT_READY):
        kind = errors.KubeUnavailable
    error = kind(status.message or f"the Kubernetes API answered {code}", status=code, reason=status.reason)
    error.retry_after = wait
    raise error


def why(error: Exception) -> str:
    """Why there was no answer, from the kernel or TLS: libraries above only say that something failed."""
    if isinstance(error, (httpx2.TimeoutException, TimeoutError)):
        return "timed out"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None:
            is_bare = str(cause.strerror).startswith("Connect call failed")  # asyncio's, without the reason
            return str(OSError(cause.errno, os.strerror(cause.errno))) if is_bare else str(cause)
        group = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else None
        cause = group or cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__
