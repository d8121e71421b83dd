"""The lab's Slurm: the installed one, or another release that is downloaded once and cached.

Programs of another release are linked into the lab's bin directory, which is first on the PATH of daemons and
users.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock.model import releases
from penstock_lab import cache, files, paths, shellenv, spec, subprocesses, taskgraph
from penstock_lab.slurm import debpackages, downloads, suites


def with_programs(
    lab: spec.LabSpec, *, listener: taskgraph.Listener, environment: Mapping[str, str]
) -> spec.LabSpec:
    """The lab with the path of its Slurm; downloads it if it is not cached."""
    if not lab.slurm or releases.parse(lab.slurm) == installed():
        return msgspec.structs.replace(lab, slurm_programs="")
    found = ensure(lab.slurm, listener=listener, environment=environment)
    return msgspec.structs.replace(lab, slurm_programs=str(found))


def installed() -> releases.Release:
    return releases.parse(subprocesses.run(("slurmctld", "-V")).stdout)


def release_of(place: paths.LabPaths) -> releases.Release:
    """Release of the lab's Slurm, once its programs are linked."""
    return releases.parse(subprocesses.run(("slurmctld", "-V"), environment=shellenv.slurm(place)).stdout)


def ensure(release: str, *, listener: taskgraph.Listener, environment: Mapping[str, str]) -> Path:
    """The directory of the release's programs; downloads them if they are not cached."""
    finished = cache.root(environment) / suites.cache_name(release)

    def make(target: Path) -> None:
        scratch = target / "scratch"
        scratch.mkdir()
        name = f"Slurm {release}"
        listener.began(name)
        began = time.monotonic()
        packages = downloads.fetch(release, scratch / "apt", environment=environment)
        debpackages.unpack(packages, target, final=finished, scratch=scratch / "root")
        debpackages.require_release(target, release)
        shutil.rmtree(scratch)
        listener.ended(name, f"fetched from {suites.suite_of(release)}", time.monotonic() - began)

    return cache.ensure(finished, make)


def link(place: paths.LabPaths, lab: spec.LabSpec) -> None:
    """Link the lab's own Slurm, if it has one."""
    if not lab.slurm_programs:
        return
    for name in (*debpackages.DAEMONS, *debpackages.CLIENTS):
        files.link(place.bin / name, Path(lab.slurm_programs) / "bin" / name)


def folders(lab: spec.LabSpec) -> dict[str, str]:
    """The site file's keys for its folders; none for the installed Slurm."""
    if not lab.slurm_programs:
        return {}
    return {"plugin_dir": f"{lab.slurm_programs}/plugins", "commands_dir": f"{lab.slurm_programs}/bin"}


def slurmd_options(lab: spec.LabSpec) -> tuple[str, ...]:
    """slurmd's option for a slurmstepd that is not in /usr/sbin."""
    return ("-d", f"{lab.slurm_programs}/bin/slurmstepd") if lab.slurm_programs else ()
