"""Finds the slurmds of this host by their command lines: the node of each, and the slurm.conf it reads."""

from __future__ import annotations

import getopt
from pathlib import Path

PROC = Path("/proc")
OPTIONS = "bcCd:Df:FGhL:MN:sVv"
"""slurmd's options, which may stand around -f and -N."""


def confs(proc: Path = PROC) -> dict[str, str]:
    """The file given by -f (or "") for each node given by -N; slurmds without -N are skipped."""
    found = {}
    for path in proc.glob("[0-9]*/cmdline"):
        try:
            program, *words = path.read_text(errors="replace").split("\0")[:-1]
            options = dict(getopt.getopt(words, OPTIONS)[0]) if Path(program).name == "slurmd" else {}
        except (OSError, ValueError, getopt.GetoptError):
            continue  # the process has ended, has no arguments (a kernel thread), or has unknown options
        if options.get("-N"):
            found[options["-N"]] = options.get("-f", "")
    return found
