"""Which Slurm a lab has: the machine's own, or another release that is fetched once and kept.

The lab asks here and nowhere else. Another release's programs are first on the PATH of the lab's daemons and
of those who use the lab, through links in its bin directory.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock.model import releases
from penstock_lab import cache, paths, shellenv, spec, subprocesses, taskgraph
from penstock_lab.slurm import debpackages, downloads, suites


def with_programs(
    lab: spec.LabSpec, *, listener: taskgraph.Listener, environment: Mapping[str, str]
) -> spec.LabSpec:
    """The lab with the place of its Slurm, which is fetched first if need be."""
    if not lab.slurm or releases.parse(lab.slurm) == installed():
        return msgspec.structs.replace(lab, slurm_programs="")
    found = ensure(lab.slurm, listener=listener, environment=environment)
    return msgspec.structs.replace(lab, slurm_programs=str(found))


def installed() -> releases.Release:
    """Release of the machine's own Slurm."""
    return releases.parse(subprocesses.run(("slurmctld", "-V")).stdout)


def release_of(place: paths.LabPaths) -> releases.Release:
    """Release of the lab's Slurm, once its programs are linked."""
    return releases.parse(subprocesses.run(("slurmctld", "-V"), environment=shellenv.slurm(place)).stdout)


def ensure(release: str, *, listener: taskgraph.Listener, environment: Mapping[str, str]) -> Path:
    """The directory with the release's programs, which are fetched unless they are there."""
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
        debpackages.remove(scratch)
        listener.ended(name, f"fetched from {suites.suite_of(release)}", time.monotonic() - began)

    return cache.ensure(finished, make)


def link(place: paths.LabPaths, lab: spec.LabSpec) -> None:
    """Put the lab's own Slurm, if it has one, before the machine's."""
    if not lab.slurm_programs:
        return
    for name in (*debpackages.DAEMONS, *debpackages.CLIENTS):
        unfinished = place.bin / f".{name}.new"
        unfinished.unlink(missing_ok=True)
        unfinished.symlink_to(Path(lab.slurm_programs) / "bin" / name)
        unfinished.replace(place.bin / name)


def folders(lab: spec.LabSpec) -> dict[str, str]:
    """What the site file has to say of where it is; nothing for the machine's own, which knows."""
    if not lab.slurm_programs:
        return {}
    return {"plugin_dir": f"{lab.slurm_programs}/plugins", "commands_dir": f"{lab.slurm_programs}/bin"}


def slurmd_options(lab: spec.LabSpec) -> tuple[str, ...]:
    """What slurmd must be told when its other half is not in /usr/sbin."""
    return ("-d", f"{lab.slurm_programs}/bin/slurmstepd") if lab.slurm_programs else ()
