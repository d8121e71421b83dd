"""`penstock daemon --ping`, the Deployment's probe, and folders that a pod finds owned by root."""

from __future__ import annotations

import json
import os
import pwd
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli import daemons as command
from penstock.daemon import penstockd
from penstock.hooks import wire

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "penstockd.json"
    path.write_text(json.dumps({"socket": str(tmp_path / "s")}))
    return path


@pytest.fixture
def answering(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """A server on the socket that answers once with the given word."""
    word: str = request.param
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(wire.pack(word))

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join(timeout=10)


@pytest.mark.parametrize(("answering", "code"), [("pong", 0), ("starting", 1)], indirect=["answering"])
@pytest.mark.usefixtures("answering")
def test_only_a_connected_penstockd_is_ready(config: Path, code: int) -> None:
    """Alive is not enough: it must be connected to Slurm and Kubernetes."""
    assert CliRunner().invoke(command.daemon, ["--config", str(config), "--ping"]).exit_code == code


def test_missing_penstockd_is_one_line(config: Path) -> None:
    """And a failed probe."""
    done = CliRunner().invoke(command.daemon, ["--config", str(config), "--ping"])
    assert done.exit_code == 1
    assert "penstockd does not answer on" in done.output


@as_root
def test_only_empty_root_folders_are_chowned(tmp_path: Path) -> None:
    """Folders that a kubelet created become penstockd's; used ones keep their owner."""
    used, fresh = tmp_path / "used", tmp_path / "deep" / "fresh"
    used.mkdir()
    (used / "file").touch()
    penstockd.give_folders([used, fresh], "nobody")
    assert used.stat().st_uid == 0
    assert fresh.stat().st_uid == pwd.getpwnam("nobody").pw_uid
