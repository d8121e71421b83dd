"""Asks penstockd over its socket, for commands that show what it knows."""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from penstock import errors, wellknown
from penstock.hooks import wire
from penstock.model import views

DEFAULT_SOCKET = "/run/penstock/penstockd.sock"
SECONDS = 10.0


def socket_path() -> str:
    return os.environ.get(wellknown.ENV_SOCKET, DEFAULT_SOCKET)


def describe(job_ids: Iterable[int] = ()) -> list[views.JobView]:
    """The Kubernetes side of these jobs, or of all with pods or sent back; as far as we may see them."""
    path = socket_path()
    fields = [word for job_id in job_ids for word in ("job", str(job_id))]
    try:
        answer = wire.ask(path, SECONDS, wellknown.VERB_DESCRIBE, *fields)
    except (OSError, wire.WireError) as error:
        raise errors.PenstockError(
            f"penstockd does not answer on {path}: {error}",
            hint='Is it running? For a lab: `penstock lab status`, then eval "$(penstock lab env)".',
        ) from error
    if not answer or answer[0] != b"jobs":
        raise errors.PenstockError(f"penstockd on {path} did not understand the question")
    return msgspec.json.decode(answer[1], type=list[views.JobView])
