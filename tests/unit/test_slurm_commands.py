"""Running Slurm's commands: output, failures, timeouts."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import errors
from penstock.slurm import commands, control

NO_NUMBER = "Job update not available right now, the DB index is being set, try again in a bit for job 394"
"""Slurm's words while slurmdbd has not heard of a job that has started."""


async def said_by(script: str, *, within: float = 20.0) -> str:
    """Output of a shell script that stands for a command of Slurm's."""
    return await commands.run(("sh", "-c", script), slurm_conf="/etc/slurm/slurm.conf", within=within)


async def test_stdout_is_returned() -> None:
    """Messages on stderr do not matter if the command succeeds."""
    assert await said_by("echo warning >&2; echo \"$SLURM_CONF\"; head -c 300000 /dev/zero | tr '\\0' x") == (
        "/etc/slurm/slurm.conf\n" + "x" * 300_000
    )


async def test_error_has_the_last_line() -> None:
    """It distinguishes refusals from missing answers."""
    with pytest.raises(errors.SlurmError, match=r"^sh: Invalid job id$"):
        await said_by("echo one >&2; echo Invalid job id >&2; exit 1")
    with pytest.raises(errors.SlurmUnavailable, match="Connection refused"):
        await said_by("echo Connection refused >&2; exit 1")
    with pytest.raises(errors.SlurmNotYet, match="try again in a bit"):
        await said_by(f"echo '{NO_NUMBER}' >&2; exit 1")


async def test_timeout_has_the_last_error_line() -> None:
    """Without a slurm.conf squeue looks for one for a minute, and says so at once."""
    with pytest.raises(
        errors.SlurmUnavailable, match=r"^sh did not answer within 0\.5 s: cannot stat file, retrying$"
    ):
        await said_by("echo one >&2; echo cannot stat file, retrying >&2; exec sleep 60", within=0.5)


async def test_timeout_without_output() -> None:
    with pytest.raises(errors.SlurmUnavailable, match=r"^sh did not answer within 0\.1 s$"):
        await said_by("exec sleep 60", within=0.1)


HIDING = (
    "SQUEUE_USERS", "SQUEUE_NAMES", "SQUEUE_ACCOUNT", "SQUEUE_STATES", "SQUEUE_FORMAT2", "SINFO_PARTITION",
    "SACCT_FEDERATION", "SCONTROL_SIBLING", "SCANCEL_STATE", "SLURM_CLUSTERS", "SLURM_WORKING_CLUSTER",
)  # fmt: skip


async def test_users_filters_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that stand for options are dropped; all others are passed."""
    for name in HIDING:
        monkeypatch.setenv(name, "daemon")
    monkeypatch.setenv("SLURM_JWT", "token")
    names = {line.partition("=")[0] for line in (await said_by("env")).splitlines()}
    assert not names & set(HIDING)
    assert {"SLURM_JWT", "SLURM_CONF", "PATH"} <= names


async def test_times_are_seconds_whatever_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call's own variables are kept."""
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    asked = ("sh", "-c", 'echo "$SLURM_TIME_FORMAT"')
    assert await commands.run(asked, slurm_conf="") == "%s\n"
    assert await commands.run(asked, slurm_conf="", environment={"SLURM_TIME_FORMAT": "%c"}) == "%c\n"


async def test_missing_command_is_unavailable() -> None:
    """As during an upgrade of Slurm."""
    with pytest.raises(errors.SlurmUnavailable, match=r"^cannot run /nowhere/squeue: No such file"):
        await commands.run(("/nowhere/squeue",), slurm_conf="")


@pytest.mark.parametrize("text", ["Error: a\0b\x1b[2J", "x" * 300_000])
async def test_any_container_message_can_be_a_comment(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Characters that no program argument may contain must not keep the end from being recorded."""
    program = tmp_path / "scontrol"
    program.write_text(f'#!/bin/sh\nprintf %s "$3" >{tmp_path}/said\n')
    program.chmod(0o755)

    async def named(self: control.SlurmControl, job_id: int) -> str:
        return str(job_id)

    monkeypatch.setattr(control.SlurmControl, "_named", named)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    await control.SlurmControl("").set_comment(7, text)
    said = (tmp_path / "said").read_text()
    assert said == ("Comment=Error: a b [2J" if "Error" in text else f"Comment={text[:4096]}")
