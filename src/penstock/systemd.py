"""What a service tells systemd: that it is ready, alive, and how it is; nothing without systemd."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(*lines: str) -> None:
    """Send lines such as READY=1 or STATUS=…; what cannot be delivered is nobody's loss."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto("\n".join(lines).encode(), address)


def watchdog_seconds() -> float:
    """How often to say WATCHDOG=1: twice as often as systemd wants to hear it; 0 when it does not."""
    try:
        return int(os.environ.get("WATCHDOG_USEC", "0")) / 2_000_000
    except ValueError:
        return 0.0
