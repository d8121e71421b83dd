"""Pings penstockd over its socket, for the doctor and for probes every few seconds: so it imports nothing
else.
"""

from __future__ import annotations

import time

from penstock import wellknown
from penstock.hooks import wire

SECONDS = 5.0
WELL = "pong"


def fingerprint(path: str) -> str:
    """Of penstockd's running settings; empty if it sends none. Errors as for `ping`."""
    answer = wire.ask(path, SECONDS, wellknown.VERB_PING) or []
    return answer[1].decode(errors="replace") if len(answer) > 1 else ""


def ping(path: str) -> tuple[str, float]:
    """penstockd's answer and the time it took. Raises OSError or WireError."""
    began = time.monotonic()
    answer = wire.ask(path, SECONDS, wellknown.VERB_PING)
    return (answer[0].decode() if answer else ""), time.monotonic() - began
