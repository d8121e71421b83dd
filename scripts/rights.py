"""Becomes root through sudo, with the caller's relevant variables."""

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
"""They select the tests to run."""


def become_root(module: str, arguments: list[str], *, why: str) -> None:
    """Re-execute this process as root through sudo; without sudo, continue as it is."""
    if os.geteuid() != 0 and shutil.which("sudo"):
        print(f"penstock: {why}: asking sudo", flush=True)
        argv = ["sudo", f"--preserve-env={','.join(KEPT)}", sys.executable, "-m", module, *arguments]
        os.execvp(argv[0], argv)  # noqa: S606  # an argv list; replaces this process
