"""A broken build: a pod that a list lacks is taken for gone, without asking for it by name."""

from __future__ import annotations

from typing import Any

from penstock.bridge import follower
from penstock.model import reasons


async def _believe(self: follower.Follower, *pod: Any) -> reasons.Outcome:
    return reasons.VANISHED


assert callable(follower.Follower._ask), "the follower is not what it was: break it anew"
follower.Follower._ask = _believe  # type: ignore[assignment, method-assign]  # that is the breakage
