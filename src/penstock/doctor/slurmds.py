"""slurmds on this host, by their command lines: which node each serves, and which slurm.conf it reads."""

from __future__ import annotations

import getopt
from pathlib import Path

PROC = Path("/proc")
OPTIONS = "bcCd:Df:FGhL:MN:sVv"
"""slurmd's own, as far as they come before or after -f and -N."""


def confs(proc: Path = PROC) -> dict[str, str]:
    """The file that -f names, by the node that -N names; nothing where slurmd goes by its environment."""
    found = {}
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            words = _command_line(folder)
            if words and Path(words[0]).name == "slurmd":
                options = _options(words[1:])
                if options.get("-N"):
                    found[options["-N"]] = options.get("-f", "")
    return found


def _command_line(folder: Path) -> list[str]:
    try:
        return (folder / "cmdline").read_text(errors="replace").split("\0")[:-1]
    except OSError:
        return []  # it has ended


def _options(words: list[str]) -> dict[str, str]:
    try:
        found, _ = getopt.getopt(words, OPTIONS)
    except getopt.GetoptError:
        return {}
    return dict(found)
