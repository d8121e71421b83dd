"""The look at a lab's sockets sees what can be reached from outside: else it would prove nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock_lab import paths, processes, supervision
from tests.e2e import sockets

LISTEN = """
import socket, sys, time
listener = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
listener.bind((sys.argv[1], 0))
listener.listen()
print("listens", flush=True)
time.sleep(600)
"""


@pytest.fixture
def place() -> Iterator[paths.LabPaths]:
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        made = paths.LabPaths(Path(directory))
        made.run.mkdir()
        yield made


@pytest.mark.parametrize(
    ("address", "outside"),
    [
        ("127.0.0.1", False),
        ("127.0.1.1", False),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("0.0.0.0", True),  # noqa: S104  # what must be found
        ("::", True),
    ],
)
def test_every_address_is_told_apart(place: paths.LabPaths, address: str, outside: bool) -> None:
    """IPv4, IPv6 and one in the clothes of the other."""
    if ":" in address and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with subprocess.Popen([sys.executable, "-c", LISTEN, address], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"listens\n"
            identity = processes.identify(child.pid)
            assert identity is not None
            record = supervision.Record(
                pid=child.pid, start_ticks=identity.start_ticks, boot_id=processes.boot_id(), started_at=0.0
            )
            place.component_record("thing").write_bytes(msgspec.json.encode(record))
            assert [pid for _, pid in sockets.listening(place)] == [child.pid]
            assert bool(sockets.reachable_from_outside(place)) is outside
        finally:
            child.kill()
