"""A broken build: a pod that a list lacks is taken for gone, without asking for it by name."""

from __future__ import annotations

from typing import Any

from penstock.bridge import following, outcomes


async def _believe(self: following.Follower, *pod: Any) -> outcomes.Outcome:
    return outcomes.VANISHED


assert callable(following.Follower._ask), "the follower is not what it was: break it anew"
following.Follower._ask = _believe  # type: ignore[assignment, method-assign]  # that is the breakage
