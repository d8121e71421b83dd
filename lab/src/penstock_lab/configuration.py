"""The lab's configuration files, written at each `up`: lab.json becomes a site.yaml, from which Penstock
renders the rest as for any site.
"""

from __future__ import annotations

import os

from penstock import wellknown
from penstock.install import facts, sitefiles
from penstock.model import releases
from penstock.site import loader, nodegroups
from penstock.site import schema as site_schema
from penstock_lab import (
    devices,
    directories,
    files,
    loopback,
    pamsessions,
    passwd,
    paths,
    sitefile,
    spec,
    wrapper,
)
from penstock_lab.slurm import programs


def write(place: paths.LabPaths, lab: spec.LabSpec) -> str:
    """Write site.yaml and the files rendered from it."""
    if lab.bridge:
        pamsessions.guard(place)
    programs.link(place, lab)
    text = sitefile.render(place, lab, address=loopback.shared_address(), guarded=pamsessions.are_guarded())
    files.write(place.site_yaml, text)
    site = loader.load(place.site_yaml)
    for rendered in sitefiles.all_files(site, known_facts(site, release=programs.release_of(place))):
        files.directory(rendered.path.parent)
        if rendered.path.parent == place.gpu_devices:
            devices.make(rendered.path, mode=rendered.mode)
            continue
        owner = passwd.owner_of(rendered.owner) if rendered.owner != "root" else None
        files.write(rendered.path, rendered.content, mode=rendered.mode, owner=owner)
    loopback.write(place)
    files.write(place.bin / "penstock", wrapper.render(place.library), mode=0o755)
    return "written" if loopback.is_on_loopback() else f"written; {loopback.EXPOSED}"


def known_facts(site: site_schema.Site, *, release: releases.Release) -> facts.Facts:
    """The facts that a real site is asked for; a lab's site.yaml has them all."""
    return facts.Facts(
        release=release,
        groups=nodegroups.groups(site),
        slurm_uid=passwd.owner_of(directories.SLURM).uid,
        default_partition=next(name for name, each in site.partitions.items() if each.default),
        crash_points=os.environ.get(wellknown.ENV_CRASH_POINTS, ""),
    )
