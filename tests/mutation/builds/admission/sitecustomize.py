"""A broken build: an admission that forgets the room it has promised to others a moment ago."""

from __future__ import annotations

from typing import Any

from penstock.bridge import ledger
from penstock.model import resources


def _nothing(self: ledger.Ledger, *node: Any, **besides: Any) -> resources.Amount:
    return resources.Amount()


assert callable(ledger.Ledger.held_on), "the ledger is not what it was: break it anew"
ledger.Ledger.held_on = _nothing  # type: ignore[method-assign]  # that is the breakage
