"""Where daemons that systemd or Kubernetes starts look for Slurm's commands.

Both start programs with a PATH of the usual folders only, so a Slurm that is elsewhere has to be named.
"""

from __future__ import annotations

from pathlib import PurePosixPath

USUAL = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def including(folder: str) -> str:
    """A PATH with that folder first, then the one of the daemons beside it, and the usual ones after them."""
    return ":".join(dict.fromkeys((folder, str(PurePosixPath(folder).parent / "sbin"), *USUAL)))


def unless_usual(folder: str) -> str:
    """The same where that folder is in nobody's PATH; nothing where it is."""
    return "" if folder in USUAL else including(folder)
