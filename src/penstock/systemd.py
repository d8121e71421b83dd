"""Notifications to systemd: ready, alive, status. Does nothing without systemd."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(*lines: str) -> None:
    """Send lines such as READY=1 or STATUS=…; errors are ignored."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto("\n".join(lines).encode(), address)


def watchdog_seconds() -> float:
    """Interval of WATCHDOG=1: half of systemd's limit; 0 without a watchdog."""
    try:
        return int(os.environ.get("WATCHDOG_USEC", "0")) / 2_000_000
    except ValueError:
        return 0.0
