"""Is penstockd well? One question over its socket, for the doctor and for probes that come every few seconds:
so nothing else is imported here.
"""

from __future__ import annotations

import time

from penstock import wellknown
from penstock.hooks import wire

SECONDS = 5.0
WELL = "pong"


def fingerprint(path: str) -> str:
    """That of the settings that penstockd runs with; empty when it does not say. Errors as of `ping`."""
    answer = wire.ask(path, SECONDS, wellknown.VERB_PING) or []
    return answer[1].decode(errors="replace") if len(answer) > 1 else ""


def ping(path: str) -> tuple[str, float]:
    """penstockd's answer and how long it took; OSError or WireError when there is none."""
    began = time.monotonic()
    answer = wire.ask(path, SECONDS, wellknown.VERB_PING)
    return (answer[0].decode() if answer else ""), time.monotonic() - began
