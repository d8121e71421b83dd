"""penstockd stops at once, whatever launchers are connected."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from penstock.daemon import connections, penstockd, settings
from penstock.model.podpolicy import PodPolicy

KUBECONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


async def test_penstockd_stops_while_launchers_are_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python 3.12 on, Server.wait_closed waits for every connection, and so for every running job."""

    async def named(*which: Any) -> str:
        return "c"

    async def for_ever(server: asyncio.Server) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(penstockd, "_cluster_name", named)
    monkeypatch.setattr(asyncio.base_events.Server, "wait_closed", for_ever)
    (tmp_path / "k").write_text(KUBECONFIG)
    site = settings.Settings(
        socket=str(tmp_path / "s"),
        kubeconfig=str(tmp_path / "k"),
        slurm_conf=str(tmp_path / "slurm.conf"),
        hook_uids=[],
        pods=PodPolicy(),
    )
    daemon = asyncio.create_task(penstockd._run(site, ""))
    while not (tmp_path / "s").exists():  # noqa: ASYNC110  # nobody else tells
        await asyncio.sleep(0.01)
    _, writer = await asyncio.open_unix_connection(tmp_path / "s")
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)
    ended, _ = await asyncio.wait((daemon,), timeout=10)
    writer.close()
    assert ended == {daemon}, "it waits for its launchers"
    assert daemon.exception() is None


async def test_close_drops_data_for_a_stopped_launcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "CLOSE_SECONDS", 0.05, raising=False)
    ours, theirs = socket.socketpair()
    with theirs:
        connection = connections.Connection(*await asyncio.open_connection(sock=ours))
        sending = asyncio.create_task(connection.send("output", b"x" * 10_000_000, "1"))
        await asyncio.sleep(0.05)
        sending.cancel()
        closing = asyncio.create_task(connection.close())
        ended, _ = await asyncio.wait((closing,), timeout=5)
        assert ended == {closing}, "it waits for a launcher that does not read"
        assert ours.fileno() == -1
