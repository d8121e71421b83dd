"""A broken build: an admission that forgets the room it has promised to others a moment ago."""

from __future__ import annotations

from typing import Any

from penstock.bridge import jobstore
from penstock.model import resources


def _nothing(self: jobstore.Store, *node: Any, **besides: Any) -> resources.Amount:
    return resources.Amount()


assert callable(jobstore.Store.reserved_on), "the store is not what it was: break it anew"
jobstore.Store.reserved_on = _nothing  # type: ignore[method-assign]  # that is the breakage
