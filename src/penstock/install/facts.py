"""What must be known of the live site before a site file can be rendered: gathered once, then passed on."""

from __future__ import annotations

import asyncio
import dataclasses
import pwd
import re
from collections.abc import Sequence
from pathlib import Path

from penstock import errors
from penstock.install import kubeadmin
from penstock.model import releases
from penstock.render import includes
from penstock.site import clusters, nodegroups
from penstock.site.schema import Site
from penstock.slurm import conffile, controller


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """Release, nodes, and what an existing slurm.conf says without us."""

    release: releases.Release
    groups: clusters.Groups
    existing: includes.Existing | None = None
    """None when slurm.conf is written whole."""
    conf: conffile.Conf | None = None
    """All that it says, where it could be read."""
    slurm_uid: int = 0
    site_lua: bool = False
    """The site has a job_submit.lua of its own."""
    default_partition: str = ""
    password: str = ""
    crash_points: str = ""
    """Where tests kill the hooks; nowhere at a site."""


def gather(
    site: Site, *, members: Sequence[nodegroups.Member] | None = None, site_lua: bool = False
) -> Facts:
    """The facts about this site; Kubernetes is asked only when the file needs it."""
    if members is None:
        members = kubeadmin.members(site) if nodegroups.needs_kubernetes(site) else ()
    conf = read_conf(site) if site.slurm.manage == "include" else None
    release = clusters.release_of(site) or installed_release()
    return Facts(
        release=release,
        groups=nodegroups.groups(site, members),
        existing=existing_from(conf, release) if conf else None,
        conf=conf,
        slurm_uid=uid_of(site.slurm.user),
        site_lua=site_lua,
        default_partition=clusters.default_partition(site) or (conf.default_partition if conf else ""),
        password=_password(site),
    )


def nodes_and_release(site: Site) -> Facts:
    """As much as a reader of scripts needs, on any host: neither slurm.conf nor SlurmUser must be there."""
    members = kubeadmin.members(site) if nodegroups.needs_kubernetes(site) else ()
    release = clusters.release_of(site) or releases.OLDEST
    return Facts(release=release, groups=nodegroups.groups(site, members), conf=_conf_if_there(site))


def _conf_if_there(site: Site) -> conffile.Conf | None:
    if site.slurm.manage != "include":
        return None
    try:
        return read_conf(site)
    except errors.PenstockError:
        return None  # another host: its absence makes the view smaller, and that is known


def cluster_name(site: Site, known: Facts) -> str:
    """As slurmdbd knows the cluster: an existing slurm.conf says it, and always in small letters."""
    return ((known.conf.get("ClusterName") if known.conf else "") or site.cluster).lower()


def site_name(name: str) -> str:
    """ClusterName as a site file writes it: in small letters, and as Kubernetes takes it."""
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.") or "cluster"


def existing_from(conf: conffile.Conf, release: releases.Release) -> includes.Existing:
    """What includes.py must know of it; several programs of one hook are words of one line."""
    settings = dict(conf.settings)
    if releases.traits(release).epilogs_add_up:
        lists = [name.lower() for name in includes.LISTS if name.lower() in conf.values]
        settings |= {name: " ".join(conf.values[name]) for name in lists}
    return includes.Existing(settings=settings, nodes=conf.nodes, partitions=conf.partitions)


def include_path(site: Site) -> Path:
    """The file that an existing slurm.conf includes."""
    return Path(site.slurm.conf).parent / "penstock.conf"


def read_conf(site: Site) -> conffile.Conf:
    """slurm.conf as it is without us."""
    path = Path(site.slurm.conf)
    text = conffile.plain(_text(path), include=str(include_path(site)))
    return conffile.parse(text, include=lambda name: _text(path.parent / name))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise errors.UsageError(
            f"cannot read {path}: {error.strerror}",
            hint="`slurm.conf` of the site file names it; with `manage: whole` it is written.",
        ) from error


def installed_release() -> releases.Release:
    """(22, 5) from `slurmctld -V`."""
    try:
        return asyncio.run(controller.release())
    except errors.SlurmError as error:
        raise errors.UsageError(
            "`slurmctld -V` does not say which Slurm this is",
            hint='Say it in the site file: release: "22.05".',
        ) from error


def uid_of(user: str) -> int:
    """The uid of SlurmUser."""
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise errors.UsageError(
            f"there is no user {user} on this host", hint="`slurm.user` of the site file names SlurmUser."
        ) from None


def _password(site: Site) -> str:
    name = site.slurm.accounting.password_file
    if name is None or site.slurm.manage != "whole":
        return ""
    try:
        return Path(name).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise errors.UsageError(
            f"cannot read {name}: {error.strerror}", hint="`slurm.accounting.password_file` names it."
        ) from error
