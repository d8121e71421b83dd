"""A test's own intake on the lab's Slurm: folder, settings and process."""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock import wellknown
from penstock.intake import status
from penstock_lab import testing

PLAIN = "#!/bin/sh\n#SBATCH --partition=host --output=/dev/null\ntrue\n"
WRITE = """
import os, sys, time
folder, text, pause, *names = sys.argv[1:]
for number, name in enumerate(names):
    hidden = os.path.join(folder, "." + name)
    path = hidden if number % 2 else os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text)
    if number % 2:
        os.rename(hidden, os.path.join(folder, name))
    time.sleep(float(pause))
"""
"""Writes files into a folder, every second one under a hidden name first."""


class OwnIntake:
    """`penstock intake` with its own folder; can be started and killed repeatedly."""

    def __init__(
        self, lab: testing.RunningLab, folder: Path, base: Path, prefix: Sequence[str] = (), **choices: Any
    ) -> None:
        self.lab, self.folder, self.base, self.prefix = lab, folder, base, prefix
        self.log = base / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.seen: set[tuple[str, str]] = set()
        config = {
            "folder": str(folder),
            "state": str(base / "state"),
            "status": str(base / "inbox.json"),
            "slurm_conf": str(lab.place.slurm_conf),
            "workdir": str(lab.place.nas_homes / "{user}"),
            "settle_seconds": 0.5,
            "poll_seconds": 0.1,
        }
        (base / "intake.json").write_text(json.dumps(config | choices))

    @property
    def submit(self) -> Path:
        return self.folder / "submit"

    def start(self) -> None:
        argv = (
            *self.prefix,
            sys.executable,
            "-m",
            "penstock",
            "intake",
            "--config",
            str(self.base / "intake.json"),
        )
        self.starts += 1
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(argv, stderr=stream, env=self.lab.env, cwd="/")

    def looking(self) -> bool:
        """Whether the process that was started last is at work."""
        return self.log.exists() and self.log.read_text().count(" watches ") >= self.starts

    def kill(self) -> None:
        """Send SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)
            self.process = None

    def stop(self) -> int:
        """Send SIGTERM; returns the exit code."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(30)
        self.process = None
        return code

    def drop(self, name: str, text: str = PLAIN, *, user: str = "") -> Path:
        """A file in submit/, written by that user."""
        self.lab.run_as_user(("python3", "-c", WRITE, str(self.submit), text, "0", name), user=user)
        return self.submit / name

    def said(self) -> status.Inbox:
        """The current inbox."""
        return msgspec.json.decode((self.base / "inbox.json").read_bytes(), type=status.Inbox)

    def problem(self) -> str:
        try:
            return self.said().problem
        except FileNotFoundError:
            return ""

    def filed(self, which: str) -> dict[str, Path]:
        """The files in processed/ or failed/, by name."""
        return {path.name: path for path in self.folder.glob(f"{which}/*/*")}

    def idle(self) -> bool:
        """Whether submit/ is empty and no file is claimed."""
        return not any(self.submit.iterdir()) and not list(self.folder.glob(".work/*/*"))

    def jobs(self) -> list[tuple[str, str]]:
        """Id and script name of every job of this intake, from slurmctld now or at an earlier call: it
        forgets jobs some minutes after their end.
        """
        argv = ("squeue", "--noheader", "--all", "--states=all", "--format=%F|%o")
        lines = (line.partition("|") for line in self.lab.run(argv).stdout.splitlines())
        self.seen |= {(job, Path(path).name) for job, _, path in lines if path.startswith(f"{self.base}/")}
        return sorted(self.seen)


@contextlib.contextmanager
def own_intake(lab: testing.RunningLab, *, folder: Path | None = None, **choices: Any) -> Iterator[OwnIntake]:
    """An intake that runs within the block."""
    name = secrets.token_hex(4)
    base = lab.place.directory / f"intake-{name}"
    base.mkdir(mode=0o755)
    drop = folder or lab.place.nas / f"drop-{name}"
    drop.mkdir(mode=0o755, exist_ok=True)
    intake = OwnIntake(lab, drop, base, **choices)
    try:
        intake.start()
        written_by_first_pass = drop / wellknown.DROP_INDEX
        testing.until(written_by_first_pass.exists, seconds=60)
        yield intake
    finally:
        intake.kill()
