"""Slurm's commands that pods have."""

from __future__ import annotations

import re

QUERIES = ("squeue", "sinfo", "sacct", "sprio", "sshare", "sstat", "scancel")
"""Their options open and run nothing where they run."""
OFFERED = (*QUERIES, "scontrol", "sbatch")
"""What a site may choose from."""
SHIMS = (*OFFERED, "srun", "salloc")
"""Programs that stand first in a job's PATH."""
_CALLS = re.compile(rb"\b(?:%s|mpirun|mpiexec|orterun|prterun)\b" % "|".join(SHIMS).encode())


def are_called_in(script: bytes) -> bool:
    """Whether the script's own text names one. It may call others that do."""
    return _CALLS.search(script) is not None
