"""Becoming root: a lab runs daemons as several users, so `up`, `down` and `adduser` use sudo.

sudo is first tried without a password; it asks for one only on a terminal.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from penstock import errors, wellknown

KEPT_VARIABLES = (wellknown.ENV_LAB, wellknown.ENV_CACHE, "PYTHONPATH")
"""Variables that sudo would drop."""
PROBE_SECONDS = 20


def require_root(arguments: Sequence[str]) -> None:
    """Return if we are root; else replace this process by `penstock` with these arguments, as root."""
    if os.geteuid() == 0:
        return
    sudo = shutil.which("sudo")
    if sudo is None:
        raise _refusal("sudo is not installed")
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    command = rerun_command(arguments, kept=kept)
    if _works_without_password(sudo):
        os.execv(sudo, [sudo, "-n", "--", *command])  # noqa: S606 - replacing ourselves, no shell involved
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise _refusal("sudo wants a password and there is no terminal to ask for it")
    os.execv(sudo, [sudo, "--", *command])  # noqa: S606 - as above


def rerun_command(arguments: Sequence[str], *, kept: Mapping[str, str]) -> list[str]:
    """The command line of this program with these arguments and variables.

    `-P` keeps root from importing modules from the caller's current directory.
    """
    settings = [f"{name}={value}" for name, value in kept.items()]
    return ["/usr/bin/env", *settings, sys.executable, "-P", "-m", "penstock", *arguments]


def _works_without_password(sudo: str) -> bool:
    argv = [sudo, "-n", "--", "/bin/true"]
    try:
        return subprocess.run(argv, capture_output=True, timeout=PROBE_SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _refusal(why: str) -> errors.LabError:
    return errors.LabError(
        f"the lab needs root or sudo: {why}", hint="Run it as root, or as a user who may use sudo."
    )
