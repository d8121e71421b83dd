"""Makes a new slurmctld write its whole state, for releases that cannot restart without it.

Slurm saves its state every five minutes, and parts of it at every job. Slurm 26.05 refuses to start if some
parts are missing: killed in its first minutes, it would never start again.
"""

from __future__ import annotations

import time

from penstock import errors
from penstock.model import releases
from penstock_lab import paths, shellenv, spec, subprocesses
from penstock_lab.slurm import programs

STEP = "first state"
SECONDS = 20.0
_LAST_FILE = "assoc_usage"
_POLL = 0.05


def save(place: paths.LabPaths, lab: spec.LabSpec) -> str:
    """Have slurmctld save its state, once per lab; a reconfiguration begins with that."""
    if lab.complete or not releases.traits(programs.release_of(place)).starts_again_only_with_all_files:
        return "nothing to do"
    subprocesses.run(("scontrol", "reconfigure"), environment=shellenv.slurm(place))
    deadline = time.monotonic() + SECONDS
    while not (place.controller_state / _LAST_FILE).exists():
        if time.monotonic() > deadline:
            raise errors.LabError(f"slurmctld did not write {_LAST_FILE} within {SECONDS:.0f} s")
        time.sleep(_POLL)
    return "saved"
