"""Finds the site of a command, and its slurm.conf, socket and results folder.

The site is that of --site, else of $PENSTOCK_SITE, else the installed one. Of an installed site the view
(JSON) is read, which `penstock apply` writes beside the site file: it is what is in force, every user may
read it, and that takes a tenth of the time. $PENSTOCK_SOCKET and $PENSTOCK_RESULTS have precedence.
$SLURM_CONF counts only if no site is named, so that jobs of one Slurm are never joined with another's pods.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from penstock import errors, wellknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.model.siteview import SiteView

_YAML = (".yaml", ".yml")
DEFAULT_CONF = "/etc/slurm/slurm.conf"
DEFAULT_SOCKET = "/run/penstock/penstockd.sock"


def chosen(named: str | None) -> SiteView | None:
    """The view of the site; None if there is none, and with an empty --site."""
    if named is not None:
        return load(named) if named else None
    chosen_file = os.environ.get(wellknown.ENV_SITE, "")
    view = view_of(chosen_file or wellknown.SITE_FILE)
    if os.access(view, os.R_OK):
        return load(view)
    return load(chosen_file) if chosen_file else None


def load(name: str) -> SiteView:
    """Read a site file or a view. Raises UsageError."""
    if name.endswith(_YAML):
        return _from_site_file(name)
    from penstock.sbatch import siteviews  # here, because a check without a site does not need it

    return siteviews.read(name)


def view_of(name: str) -> str:
    return f"{name.rpartition('.')[0]}.json" if name.endswith(_YAML) else name


def _from_site_file(name: str) -> SiteView:
    from pathlib import Path

    from penstock.install import facts
    from penstock.site import daemonsettings, loader

    site = loader.load(Path(name))
    try:
        known = facts.nodes_and_release(site)
    except errors.UsageError as error:
        hint = "This site sizes nodes by Kubernetes: name the view (JSON) that `penstock apply` has written."
        raise errors.UsageError(f"{name}: {error.message}", hint=error.hint or hint) from error
    return daemonsettings.view(site, known.groups, release=known.release, conf=known.conf)


def slurm_conf() -> str:
    named = bool(os.environ.get(wellknown.ENV_SITE))
    own = "" if named else os.environ.get(wellknown.ENV_SLURM_CONF, "")
    return own or str(_site().get("slurm_conf") or DEFAULT_CONF)


def socket() -> str:
    return os.environ.get(wellknown.ENV_SOCKET) or str(_site().get("socket") or DEFAULT_SOCKET)


def results() -> str | None:
    """The results folder; None if the site has none."""
    return os.environ.get(wellknown.ENV_RESULTS) or str(_site().get("results") or "") or None


def _site() -> Mapping[str, Any]:
    """The site's settings of penstockd; empty if no site is named or installed."""
    chosen_file = os.environ.get(wellknown.ENV_SITE, "")
    name = chosen_file or wellknown.SITE_FILE
    view = view_of(name)
    if os.access(view, os.R_OK) and (found := load(view).penstockd):
        return found
    if not chosen_file and not os.access(name, os.R_OK):
        return {}
    from pathlib import Path

    from penstock.site import daemonsettings, loader  # here, because with a view it is not needed

    return daemonsettings.places(loader.load(Path(name)))
