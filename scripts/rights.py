"""Becoming root through sudo, with what root must know of the caller's environment."""

from __future__ import annotations

import os
import shutil
import sys

KEPT = (
    "PATH",
    "PENSTOCK_CACHE",
    "PENSTOCK_EXPLORE",
    "PENSTOCK_TEST_CRASH",
    "PENSTOCK_TEST_EXPLORE",
    "PENSTOCK_TEST_KUBERNETES",
    "PENSTOCK_TEST_KUBERNETES_VERSION",
    "PENSTOCK_TEST_SLURM",
    "PENSTOCK_TEST_STORM",
    "STRICT",
)
"""Without them other tests would run than were asked for."""


def become_root(module: str, arguments: list[str], *, why: str) -> None:
    """This process goes on as root, if sudo lets it; where there is no sudo, as it is."""
    if os.geteuid() != 0 and shutil.which("sudo"):
        print(f"penstock: {why}: asking sudo", flush=True)
        argv = ["sudo", f"--preserve-env={','.join(KEPT)}", sys.executable, "-m", module, *arguments]
        os.execvp(argv[0], argv)  # noqa: S606  # an argv list; this process becomes the one with the rights
