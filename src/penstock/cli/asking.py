"""Asks penstockd over its socket, for commands that show what it knows."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable

import msgspec

from penstock import errors, wellknown
from penstock.hooks import wire
from penstock.model import views

DEFAULT_SOCKET = "/run/penstock/penstockd.sock"
SECONDS = 10.0


def socket_path() -> str:
    return os.environ.get(wellknown.ENV_SOCKET, DEFAULT_SOCKET)


class Answer(msgspec.Struct, frozen=True):
    """What penstockd says of jobs."""

    jobs: list[views.JobView]
    sees_all: bool
    """Whether we are told of everybody's jobs."""

    def hides(self, user: str) -> bool:
        """Whether this user's jobs are not ours to see."""
        return not self.sees_all and user != _own_name()

    def by_job(self) -> dict[int, views.JobView]:
        return {view.job_id: view for view in self.jobs}


def describe(job_ids: Iterable[int] = ()) -> Answer:
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
    return Answer(msgspec.json.decode(answer[1], type=list[views.JobView]), answer[2:] == [b"all"])


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
