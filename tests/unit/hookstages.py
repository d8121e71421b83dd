"""Installed hooks, and a socket where the test plays penstockd."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

from penstock.daemon import connections
from penstock.hooks import wire
from penstock.render import hooks

NEEDS_PYTHON = pytest.mark.skipif(
    not Path("/usr/bin/python3").exists(), reason="hooks run under /usr/bin/python3"
)


class Stage:
    """Installed hooks, a listening socket, and the launcher's process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(folder / "s"))
        self.socket.listen()
        self.socket.settimeout(60)
        self.install()

    def install(self, *, release_timeout: int = 600, admit_timeout: int = 20) -> None:
        """Install the hooks, with the time limits of Epilog and PrologSlurmctld."""
        settings = hooks.HookSettings(
            libexec=str(self.folder),
            socket=str(self.folder / "s"),
            bridged_partitions=("gpu",),
            default_partition="gpu",
            release_timeout=release_timeout,
            admit_timeout=admit_timeout,
            slurm_commands=str(self.folder),
            slurm_conf="/etc/slurm/slurm.conf",
            state_dir=str(self.folder / "state"),
        )
        for file in hooks.render_hooks(settings):
            path = self.folder / file.name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(file.content)
            path.chmod(file.mode)

    def start(
        self,
        *arguments: str | bytes,
        script: bytes = b"#!/bin/sh\necho hi\n",
        output: BinaryIO | int = subprocess.PIPE,
        cwd: bytes | None = None,
        **variables: str,
    ) -> subprocess.Popen[bytes]:
        """Start the launcher as slurmd does; both streams go to `output`."""
        (self.folder / "script").write_bytes(script)
        argv = [str(self.folder / "penstock-launch"), "/bin/sh", str(self.folder / "script"), *arguments]
        environment = {"SLURM_JOB_ID": "17", "GREETING": "it's me", **variables}
        return self._run(argv, environment, output=output, cwd=cwd)

    def _run(
        self,
        argv: Sequence[str | bytes],
        environment: dict[str, str],
        *,
        output: BinaryIO | int = subprocess.PIPE,
        cwd: bytes | None = None,
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(argv, env=environment, stdout=output, stderr=output, cwd=cwd)
        self.processes.append(process)
        return process

    def close(self) -> None:
        """Stop all processes of a failed test."""
        self.socket.close()
        for process in self.processes:
            process.kill()
            process.communicate()

    def hook(self, name: str, **environment: str) -> subprocess.Popen[bytes]:
        return self._run([str(self.folder / name)], environment)

    @contextlib.contextmanager
    def accept(self) -> Iterator[tuple[socket.socket, connections.Message]]:
        """The next connection and its first message."""
        peer, _ = self.socket.accept()
        with peer:
            peer.settimeout(60)
            fields = wire.receive(peer)
            assert fields is not None
            yield peer, connections.parse(fields)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def finish(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err
