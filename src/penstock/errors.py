"""Our errors, one tree: a caller catches what it can handle and the command line prints the rest.

PenstockError                 anything we report to a person in one line
├── UsageError                the call is wrong: fix it
├── NotThere                  it does not exist, or not yet: a job, its results, its output
├── LabError                  a part of the lab could not be set up or torn down
├── ActingError               a step done as another user could not be done
├── JournalError              the intake's journal cannot be read or written
├── NasUnavailable            the shared folder is missing or not as it must be: try later
├── InstallError              a change of an installation failed; unless the hint differs it is unchanged
├── SlurmError                a Slurm command failed, or its output cannot be parsed
│   └── SlurmUnavailable      ... because a Slurm daemon does not answer: nothing is known, try later
│       └── SlurmNotYet       ... slurmctld does, but the job's record has no number yet
└── KubeError                 the Kubernetes API refused a request (carries status and reason)
    ├── KubeNotAllowed        ... 403: the caller lacks the right
    ├── KubeNotFound          ... 404: the object does not exist
    ├── KubeConflict          ... 409: it exists already, or has changed meanwhile
    ├── KubeGone              ... 410: the resource version is too old, list again
    └── KubeUnavailable       no answer, 5xx, 429 or garbage: nothing is known, try later

Exceptions of libraries never leak: they are chained as the cause.
"""

from __future__ import annotations


class PenstockError(Exception):
    """Anything we report to a person in one line; `hint` says what to do next."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(PenstockError):
    """The call itself is wrong; nothing was done."""

    exit_code = 2


class NotThere(PenstockError):
    """The call is right, but the object does not exist, or not yet."""

    exit_code = 3


class LabError(PenstockError):
    """A part of the lab could not be set up or torn down."""


class ActingError(PenstockError):
    """A step done as another user failed, was refused or timed out."""


class JournalError(PenstockError):
    """The intake's journal cannot be read or written."""


class NasUnavailable(PenstockError):
    """The shared folder is missing or not as it must be: nothing is known about its files."""


class InstallError(PenstockError):
    """An installation could not be changed. Unless the hint says otherwise, it is unchanged."""


class SlurmError(PenstockError):
    """A Slurm command failed, or its output cannot be parsed."""


class SlurmUnavailable(SlurmError):
    """A Slurm daemon does not answer: nothing is known."""


class SlurmNotYet(SlurmUnavailable):
    """slurmctld changes nothing of a job before slurmdbd has given its record a number. If slurmctld read
    the job from its state at a restart in that very moment, that never happens.
    """


class KubeError(PenstockError):
    """The Kubernetes API refused a request."""

    retry_after = 0.0  # seconds that the API asks us to wait, if it does

    def __init__(self, message: str, *, status: int = 0, reason: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.reason = reason


class KubeNotAllowed(KubeError):
    """403 for lack of rights; not a 403 by quota, webhooks or Pod Security."""


class KubeNotFound(KubeError):
    """404: the object is not there."""


class KubeConflict(KubeError):
    """409: the object exists already, or has changed meanwhile."""


class KubeGone(KubeError):
    """410: the resource version is too old; list again."""


class KubeUnavailable(KubeError):
    """No answer, 5xx or 429: nothing is known."""
