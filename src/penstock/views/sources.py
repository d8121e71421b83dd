"""Asks penstockd over its socket, for commands that show what it knows."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable

import msgspec

from penstock import errors, wellknown
from penstock.hooks import wire
from penstock.model import views
from penstock.views import places

SECONDS = 10.0


class Answer(msgspec.Struct, frozen=True):
    """What penstockd says of jobs."""

    jobs: list[views.JobView]
    sees_all: bool
    """Whether we are told of everybody's jobs."""
    problem: str = ""
    """Why nothing is known of any job."""

    def hides(self, user: str) -> bool:
        """Whether nothing can be said of this user's jobs: they are not ours to see, or nobody answers."""
        return bool(self.problem) or (not self.sees_all and user != _own_name())

    def by_job(self) -> dict[int, views.JobView]:
        return {view.job_id: view for view in self.jobs}


def describe(job_ids: Iterable[int] = ()) -> Answer:
    """The Kubernetes side of these jobs, or of all with pods or sent back; as far as we may see them."""
    path = places.socket()
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


def describe_if_it_answers(job_ids: Iterable[int] = ()) -> Answer:
    """The same; when penstockd does not answer, an answer that says so: Slurm's side can be shown without."""
    try:
        return describe(job_ids)
    except errors.PenstockError as error:
        return Answer([], sees_all=False, problem=error.message)


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
