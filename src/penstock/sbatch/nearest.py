"""Suggests what was probably meant: the closest known name, another release, another batch system.

The edit distance (insert, delete, replace, swap) is computed here because importing difflib takes longer than
the whole table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.sbatch import options

ELSEWHERE: Final = {
    "share": "it was renamed: --oversubscribe",
    "workdir": "it was renamed: --chdir",
    "walltime": "in Slurm it is --time",
    "queue": "in Slurm it is --partition",
    "project": "in Slurm it is --account",
    "cpus": "in Slurm it is --cpus-per-task",
    "cores": "in Slurm it is --cpus-per-task",
    "memory": "in Slurm it is --mem",
    "image": "the pod's image is a directive of its own: #K8S_IMAGE=...",
    "env": "in Slurm it is --export",
    "name": "in Slurm it is --job-name",
    "jobname": "in Slurm it is --job-name",
    "gpu": "in Slurm it is --gpus (for the job) or --gpus-per-node",
    "immediate": "it is an option of salloc and srun, not of sbatch",
    "pty": "it is an option of srun, not of sbatch",
    "label": "it is an option of srun, not of sbatch",
    "mpi": "it is an option of srun, not of sbatch",
    "unbuffered": "it is an option of srun, not of sbatch",
    "x11": "it is an option of srun and salloc, not of sbatch",
    "cpu-bind": "it is an option of srun, not of sbatch",
    "cpu_bind": "it is an option of srun, not of sbatch",
    "accel-bind": "it is an option of srun, not of sbatch",
    "kill-on-bad-exit": "it is an option of srun, not of sbatch",
    "multi-prog": "it is an option of srun, not of sbatch",
    "container-image": "it comes from the pyxis plugin; here the image is #K8S_IMAGE=...",
    "container-mounts": "it comes from the pyxis plugin; here mounts are #K8S_MOUNT=...",
    "container-name": "it comes from the pyxis plugin; a pod needs no name",
    "container-workdir": "it comes from the pyxis plugin; here it is #K8S_WORKDIR=...",
    "container-mount-home": "it comes from the pyxis plugin; here mounts are #K8S_MOUNT=...",
    "container-writable": "it comes from the pyxis plugin; a pod's file system is writable",
}


def hint_for_option(name: str, table: options.Table) -> str:
    """A hint for an unknown long option."""
    lowered = name.lower()
    if lowered in ELSEWHERE:
        return ELSEWHERE[lowered]
    tidy = lowered.replace("_", "-")
    if tidy in table.by_name:
        return f"did you mean --{tidy}?"
    found = nearest(tidy, table.by_name)
    return f"did you mean --{found}?" if found else "see docs/compatibility.md for all options"


def hint_for_short(letter: str, table: options.Table) -> str:
    swapped = letter.swapcase()
    if swapped in table.by_short:
        return f"-{swapped} is --{table.by_short[swapped].name}"
    return "short options are one dash and one letter, long ones two dashes and a name"


def other_release(name: str, release: str) -> str:
    """A text about an option that exists in other releases only; else empty."""
    for option in options.every_option():
        if option.name == name and not option.known_in(release):
            if option.since > release:
                return f"was added in Slurm {option.since}; this site runs {release}"
            return f"was removed after Slurm {option.until}; this site runs {release}"
    return ""


def hint(name: str, known: Iterable[str], otherwise: str) -> str:
    """ "did you mean …?" with the closest known name, else another hint."""
    near = nearest(name, known)
    return f"did you mean {near}?" if near else otherwise


def nearest(word: str, candidates: Iterable[str]) -> str:
    """The closest candidate, if its distance is at most a third of the word."""
    best, best_distance = "", max(1, min(len(word), 60) // 3) + 1
    for candidate in candidates:
        distance = _distance(word[:60], candidate, best_distance)
        if distance < best_distance:
            best, best_distance = candidate, distance
    return best


def _distance(left: str, right: str, limit: int) -> int:
    """Number of edits between the words, where swapping neighbours is one; at most about `limit`."""
    if abs(len(left) - len(right)) >= limit:
        return limit
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        older, before = before, row
        row = [i]
        for j, b in enumerate(right, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]
