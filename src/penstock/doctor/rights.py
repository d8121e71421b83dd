"""What to do for whoever may not see enough of a site to look at it."""

from __future__ import annotations

import os

from penstock import errors

AS_ROOT = "run it as root"


def remedy(error: Exception) -> str:
    """For an error that is for want of rights; for others what they say themselves."""
    both = (error, error.__cause__)
    if os.geteuid() != 0 and any(isinstance(one, PermissionError | errors.KubeNotAllowed) for one in both):
        return AS_ROOT
    return error.hint if isinstance(error, errors.PenstockError) else ""
