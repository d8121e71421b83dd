"""All differences between Slurm's releases, as data: no other code checks the release.

What is here was observed on the releases of TRIED, on which `make test-matrix` runs the end-to-end suite. A
release in between counts as the older one, plus what its own release notes say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock import errors

Release = tuple[int, int]  # year and month of a Slurm release, such as (22, 5)

OLDEST: Release = (22, 5)
TRIED: tuple[Release, ...] = (OLDEST, (24, 11), (26, 5))

BATCH_STEP_IDS = ("", "4294967291", "-5", "batch")
"""SLURM_STEP_ID of the batch script in TaskProlog: unset up to 24.11, -5 on 26.05, or its other names."""

_CGROUP_CAN_BE_DISABLED: Release = (23, 11)
_EPILOGS_ADD_UP: Release = (24, 5)
_HOOK_TIMEOUTS_ARE_TWO: Release = (25, 5)
_STARTS_AGAIN_ONLY_WITH_ALL_FILES: Release = (26, 5)
_VERSION = re.compile(r"(?:^|\s)(\d{2})\.(\d{2})(?:\.\S*)?$")


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Properties of one release."""

    hook_timeouts: tuple[str, ...]  # options of slurm.conf that limit Prolog and Epilog
    epilogs_add_up: bool  # whether all Epilog lines count, in order and each with its own time; else the last
    starts_again_only_with_all_files: bool
    """Whether slurmctld refuses to start with only some of its state files."""
    cgroup_conf: tuple[str, ...]
    """Later releases must be told not to use cgroups, earlier ones reject that line."""


def traits(release: Release) -> Traits:
    """Properties of this release, tried or not."""
    are_two = release >= _HOOK_TIMEOUTS_ARE_TWO
    return Traits(
        hook_timeouts=("PrologTimeout", "EpilogTimeout") if are_two else ("PrologEpilogTimeout",),
        epilogs_add_up=release >= _EPILOGS_ADD_UP,
        starts_again_only_with_all_files=release >= _STARTS_AGAIN_ONLY_WITH_ALL_FILES,
        cgroup_conf=("CgroupPlugin=disabled",) if release >= _CGROUP_CAN_BE_DISABLED else (),
    )


def parse(answer: str) -> Release:
    """(22, 5) from `slurm-wlm 22.05.8`, the output of `slurmctld -V`, or from a plain 22.05."""
    match = _VERSION.search(answer.strip())
    if match is None:
        raise errors.SlurmError(f"{answer.strip()!r} is not a version of Slurm")
    return int(match[1]), int(match[2])


def text(release: Release) -> str:
    """22.05 for (22, 5)."""
    return f"{release[0]}.{release[1]:02}"
