"""Our errors, one tree: a caller catches what it can handle and the command line prints the rest.

PenstockError                 anything we report to a person in one line
├── UsageError                the caller asked for something impossible: fix the call
├── NotThere                  what was asked for does not exist, or not yet: a job, its results, its output
├── LabError                  a part of the lab could not be set up or torn down
├── ActingError               a step done as another user could not be done
├── JournalError              the intake's journal cannot be read or written
├── NasUnavailable            the shared folder is not there, or not as it must be: try later
├── InstallError              an installation could not be changed; it is as it was before, or the hint says
├── SlurmError                a Slurm command failed or answered nonsense
│   └── SlurmUnavailable      ... because a Slurm daemon does not answer: nothing is known, try later
│       └── SlurmNotYet       ... slurmctld does, but changes nothing of a job whose record has no number yet
└── KubeError                 the Kubernetes API refused a request (carries status and reason)
    ├── KubeNotAllowed        ... 403: whoever asks has not the right (an API server that has just started
    │                         forbids everything for a moment)
    ├── KubeNotFound          ... 404: the object is not there
    ├── KubeConflict          ... 409: it is there already, or has changed meanwhile
    ├── KubeGone              ... 410: the resource version is too old, list again
    └── KubeUnavailable       the API does not answer or answers 5xx/429/nonsense: nothing is known, try later

The libraries underneath are never allowed to leak their own exceptions: they are chained as the cause.
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
    """What was asked for is not there: the call is right, and may have another answer later."""

    exit_code = 3


class LabError(PenstockError):
    """A part of the lab could not be set up or torn down."""


class ActingError(PenstockError):
    """A step done as another user broke, was refused or took too long."""


class JournalError(PenstockError):
    """The intake's journal cannot be read or written."""


class NasUnavailable(PenstockError):
    """The shared folder is not there, or not as it must be: nothing is known of the files in it."""


class InstallError(PenstockError):
    """An installation could not be changed; unless the hint says otherwise it is as it was before."""


class SlurmError(PenstockError):
    """A Slurm command failed or answered something we do not understand."""


class SlurmUnavailable(SlurmError):
    """A Slurm daemon does not answer: nothing is known."""


class SlurmNotYet(SlurmUnavailable):
    """slurmctld changes nothing of a job before slurmdbd has given its record a number. Of a job that it has
    read from its state after a restart in that very moment, it never does.
    """


class KubeError(PenstockError):
    """The Kubernetes API refused a request."""

    retry_after = 0.0
    """Seconds that the API asks us to wait, if it does."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.reason = reason


class KubeNotAllowed(KubeError):
    """403 for want of rights; not what quotas, webhooks or Pod Security refuse, which is 403 too."""


class KubeNotFound(KubeError):
    """404: the object is not there."""


class KubeConflict(KubeError):
    """409: the object is there already, or has changed meanwhile."""


class KubeGone(KubeError):
    """410: the resource version asked for is too old; list again."""


class KubeUnavailable(KubeError):
    """The API does not answer, or answers 5xx or 429: nothing is known."""
