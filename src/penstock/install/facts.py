"""Facts of the live site that rendering needs beside the site file."""

from __future__ import annotations

import asyncio
import contextlib
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
    release: releases.Release
    groups: clusters.Groups
    existing: includes.Existing | None = None
    """An existing slurm.conf without our include; None with `manage: whole`."""
    conf: conffile.Conf | None = None
    """The same, parsed, if it could be read."""
    slurm_uid: int = 0
    site_lua: bool = False
    """Whether the site has its own job_submit.lua."""
    default_partition: str = ""
    password: str = ""
    crash_points: str = ""
    """Crash points of the hooks, for tests."""


def gather(
    site: Site, *, members: Sequence[nodegroups.Member] | None = None, site_lua: bool = False
) -> Facts:
    """Gather the facts. Kubernetes is asked only if nodes or their sizes come from there."""
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
    """The facts that checking scripts needs, on hosts without slurm.conf or SlurmUser, too."""
    members = kubeadmin.members(site) if nodegroups.needs_kubernetes(site) else ()
    release, conf = clusters.release_of(site) or releases.OLDEST, None
    if site.slurm.manage == "include":
        with contextlib.suppress(errors.PenstockError):
            conf = read_conf(site)
    return Facts(release=release, groups=nodegroups.groups(site, members), conf=conf)


def cluster_name(site: Site, known: Facts) -> str:
    """The cluster's name in slurmdbd: that of an existing slurm.conf, in lower case."""
    return ((known.conf.get("ClusterName") if known.conf else "") or site.cluster).lower()


def site_name(name: str) -> str:
    """ClusterName in a site file: lower case, valid in Kubernetes."""
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.") or "cluster"


def existing_from(conf: conffile.Conf, release: releases.Release) -> includes.Existing:
    """The settings for includes.py; several programs of one hook are joined by spaces."""
    settings = dict(conf.settings)
    if releases.traits(release).epilogs_add_up:
        lists = [name.lower() for name in includes.LISTS if name.lower() in conf.values]
        settings |= {name: " ".join(conf.values[name]) for name in lists}
    return includes.Existing(settings=settings, nodes=conf.nodes, partitions=conf.partitions)


def include_path(site: Site) -> Path:
    """Our file, which an existing slurm.conf includes."""
    return Path(site.slurm.conf).parent / "penstock.conf"


def read_conf(site: Site) -> conffile.Conf:
    """slurm.conf without our include."""
    path = Path(site.slurm.conf)
    text = conffile.plain(_text(path), include=str(include_path(site)))
    return conffile.parse(text, include=lambda name: _text(path.parent / name))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise errors.UsageError(
            f"cannot read {path}: {error.strerror}",
            hint="It is `slurm.conf` of the site file; with `manage: whole` Penstock writes it.",
        ) from error


def installed_release() -> releases.Release:
    """Such as (22, 5), by `slurmctld -V`."""
    try:
        return asyncio.run(controller.release())
    except errors.SlurmError as error:
        raise errors.UsageError(
            "`slurmctld -V` does not tell Slurm's release",
            hint='Write it into the site file: release: "22.05".',
        ) from error


def uid_of(user: str) -> int:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise errors.UsageError(
            f"there is no user {user} on this host", hint="SlurmUser is `slurm.user` of the site file."
        ) from None


def _password(site: Site) -> str:
    name = site.slurm.accounting.password_file
    if name is None or site.slurm.manage != "whole":
        return ""
    try:
        return Path(name).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise errors.UsageError(
            f"cannot read {name}: {error.strerror}", hint="It is `slurm.accounting.password_file`."
        ) from error
