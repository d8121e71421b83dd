"""Runs pytest as root, through sudo if need be: end-to-end tests start daemons under several users."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

# End-to-end tests mostly wait: three workers on two cores, each with a lab of its own, a file never split.
WORKERS = ("--numprocesses=3", "--dist=loadfile")
ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> None:
    os.chdir(ROOT)
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *WORKERS, *arguments]
    if os.geteuid() != 0 and shutil.which("sudo"):
        print("penstock: the end-to-end tests need root: asking sudo", flush=True)
        kept = "--preserve-env=PATH,PENSTOCK_TEST_CRASH,PENSTOCK_TEST_STORM"
        argv = ["sudo", kept, *argv]
    os.execvp(argv[0], argv)  # noqa: S606  # an argv list; this process becomes pytest


if __name__ == "__main__":
    main(sys.argv[1:])
