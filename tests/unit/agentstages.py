"""A stage for agent.sh: its folder in the pod, and every shell that images have."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from penstock.render import podenv, secrets

SHELLS = {"dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}
Process = subprocess.Popen[bytes]


class Stage:
    """A folder like the mounted Secret of a job, with the agent in it."""

    def __init__(self, folder: Path, shell: list[str]) -> None:
        self.folder = folder
        self.shell = shell
        self.started: list[Process] = []
        self.last_words = folder / "termination-log"
        self.last_words.touch()
        self.run_folder, self.hosts = folder / "run", folder / "hosts"
        self.run_folder.mkdir()
        agent = secrets.AGENT.replace(b"/dev/termination-log", bytes(self.last_words))
        agent = agent.replace(b"/tmp/.penstock-", bytes(folder / "penstock-"))
        agent = agent.replace(b"/penstock-run", bytes(self.run_folder)).replace(
            b"/etc/hosts", bytes(self.hosts)
        )
        (folder / "agent.sh").write_bytes(agent)

    def start(
        self,
        script: str,
        *,
        path: str = os.environ["PATH"],
        start_path: str = os.environ["PATH"],
        added: Mapping[str, str] = MappingProxyType({}),
        exported: Mapping[str, str] = MappingProxyType({}),
        **settings: str,
    ) -> Process:
        """Run a script of sh; settings are the agent's, by name."""
        (self.folder / "script").write_text(script)
        words = (b"/bin/sh", str(self.folder / "script").encode(), b"a b")
        (self.folder / "arguments").write_bytes(podenv.set_line(words))
        pairs = [(b"COLOUR", b"it's blue"), (b"SLURM_JOB_ID", b"17"), (b"PATH", path.encode())]
        pairs += [(name.encode(), value.encode()) for name, value in exported.items()]
        (self.folder / "environment").write_bytes(podenv.export_lines(pairs))
        known = {"workdir": str(self.folder), "umask": "", "stdin": "/dev/null"}
        known |= {"stdout": "", "stderr": "", "kept": "", "output_dir": "", "outputs": ""}
        values = {f"penstock_{name}": value.encode() for name, value in (known | settings).items()}
        (self.folder / "settings").write_bytes(podenv.assignments(values))
        return self.beside(path=start_path, added=added)

    def beside(
        self,
        *words: str,
        text: str = "",
        path: str = os.environ["PATH"],
        added: Mapping[str, str] = MappingProxyType({}),
    ) -> Process:
        """An agent process with these arguments and this input."""
        program = shutil.which(self.shell[0]) or self.shell[0]
        argv = [program, *self.shell[1:], str(self.folder / "agent.sh"), *words]
        pipe = subprocess.PIPE
        started = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, env={"PATH": path, **added}, process_group=0
        )
        self.started.append(started)
        if started.stdin is not None:
            started.stdin.write(text.encode())
            started.stdin.flush()
        return started

    def clear(self) -> None:
        """End what a test that failed left running, the script's children with it."""
        for process in self.started:
            with process, contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def run(self, script: str, **how: Any) -> tuple[int, str, str]:
        return finish(self.start(script, **how))


def finish(process: Process) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out.decode(), err.decode()


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.needs(SHELLS[name][0])) for name in SHELLS])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    shell = SHELLS[request.param]
    made = Stage(tmp_path, shell)
    yield made
    made.clear()
