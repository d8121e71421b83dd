"""A stage for serve.sh and shim.sh: a pod's folders and every shell that images have."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.bridge.podstream import Frame
from penstock.render import secrets
from tests.unit.agentstages import SHELLS, Process


class Server:
    """One run of serve.sh, which is one connection of penstockd's."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def hear(self) -> Frame | None:
        """The next frame; None at the end."""
        assert self.process.stdout is not None
        *words, size = self.process.stdout.readline().decode().split() or ("", "0")
        return Frame(tuple(words), self.process.stdout.read(int(size))) if words[0:1] != [""] else None

    def words(self) -> list[str]:
        """The words of the next frame."""
        frame = self.hear()
        assert frame is not None
        return list(frame.words)

    def say(self, *words: str | int, body: bytes = b"") -> None:
        assert self.process.stdin is not None
        line = " ".join(map(str, (*words, len(body))))
        self.process.stdin.write(line.encode() + b"\n" + body)
        self.process.stdin.flush()

    def cut(self) -> None:
        """The connection breaks: no input any more, and nobody reads."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class PodStage:
    def __init__(self, folder: Path, shell: list[str]) -> None:
        self.folder, self.shell = folder, shell
        self.run = folder / "run"
        self.run.mkdir()
        self._started: list[Process] = []
        files = {"serve.sh": secrets.SERVER, "scontrol": secrets.SHIM, "sbatch": secrets.SHIM}
        for name, content in files.items():
            (folder / name).write_bytes(content.replace(b"/penstock-run", bytes(self.run)))

    def serve(self) -> Server:
        """A new connection, after its `hello`."""
        server = Server(self._start("serve.sh", stdin=subprocess.PIPE, start_new_session=True))
        assert server.words() == ["hello", "1"]
        return server

    def ready(self) -> Server:
        """A new connection to a pod without calls."""
        server = self.serve()
        assert server.words() == ["ready"]
        return server

    def call(self, name: str, *words: str | bytes, **how: Any) -> Process:
        """A command typed in the pod."""
        return self._start(name, *words, **({"stdin": subprocess.DEVNULL} | how))

    def _start(self, name: str, *words: str | bytes, **how: Any) -> Process:
        shell = [shutil.which(self.shell[0]) or self.shell[0], *self.shell[1:]]
        argv = [*shell, str(self.folder / name), *words]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)
        self._started.append(process)
        return process

    def clear(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(process.pid) == process.pid:
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.needs(SHELLS[name][0])) for name in SHELLS])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PodStage]:
    made = PodStage(tmp_path, SHELLS[request.param])
    yield made
    made.clear()
