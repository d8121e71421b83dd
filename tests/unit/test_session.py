"""The PAM session, with a squeue and a slurmstepd played by the test: which steps may start on a node."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from penstock.render import hooks


def session(folder: Path, title: str, squeue: str, *, kind: str = "open_session") -> int:
    """Exit status for a step whose slurmstepd has that title; `squeue` is the stub's script."""
    settings = hooks.HookSettings(
        libexec=str(folder),
        socket=str(folder / "s"),
        bridged_partitions=("gpu", "cpu"),
        default_partition="gpu",
        release_timeout=600,
        slurm_conf="/etc/slurm/slurm.conf",
        state_dir="/var/spool/slurmctld",
        slurm_commands=str(folder),
    )
    (file,) = (file for file in hooks.render_hooks(settings) if file.name == "penstock-session")
    for name, content in (("session", file.content), ("squeue", f"#!/bin/sh\n{squeue}\n".encode())):
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o755)
    argv = [title, "-c", f"{folder / 'session'}; exit $?"]
    env = {"PAM_TYPE": kind, "PATH": os.environ["PATH"]}
    return subprocess.run(argv, executable="/bin/sh", env=env, timeout=60, check=False).returncode


@pytest.mark.parametrize(
    ("squeue", "code"),
    [
        ("echo gpu", 1),
        ("echo host", 0),
        ("echo gpux", 0),
        ("echo gpu; echo gpu", 1),
        ("echo host; echo gpu", 1),
        ("echo host; echo host", 0),
        ("echo gpu,cpu; echo gpu", 1),
        ("echo host; exit 1", 1),
        ("true", 1),
    ],
)
def test_steps_of_bridged_jobs_do_not_start(tmp_path: Path, squeue: str, code: int) -> None:
    """If any line of several names a bridged partition, and if the partition is unknown."""
    assert session(tmp_path, "slurmstepd: [17.0]", squeue) == code


@pytest.mark.parametrize("title", ["slurmstepd: [17.batch]", "slurmstepd: [17.extern]"])
def test_batch_script_starts(tmp_path: Path, title: str) -> None:
    """It is our launcher; squeue is not asked."""
    assert session(tmp_path, title, "echo gpu") == 0


def test_close_session_is_allowed(tmp_path: Path) -> None:
    """Only the beginning can be refused."""
    assert session(tmp_path, "slurmstepd: [17.0]", "echo gpu", kind="close_session") == 0
