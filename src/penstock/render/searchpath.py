"""PATH of daemons that systemd or Kubernetes starts.

Both set only the usual folders, so another folder of Slurm's commands has to be added.
"""

from __future__ import annotations

from pathlib import PurePosixPath

USUAL = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def including(folder: str) -> str:
    """A PATH with that folder first, then the sbin next to it, then the usual ones."""
    return ":".join(dict.fromkeys((folder, str(PurePosixPath(folder).parent / "sbin"), *USUAL)))


def unless_usual(folder: str) -> str:
    """The same, or "" for a folder that is in every PATH."""
    return "" if folder in USUAL else including(folder)
