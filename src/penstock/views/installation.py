"""Which site a command is about, what is known of it, and where its slurm.conf, socket and results are.

--site names it, else $PENSTOCK_SITE; else it is the installed one. Of a site that is installed the small view
(JSON) is read, which `penstock apply` has written beside the site file: it says what is in force, every user
may read it, and that takes a tenth of the time. $PENSTOCK_SOCKET and $PENSTOCK_RESULTS come first;
$SLURM_CONF counts where no site is named, so that jobs of one Slurm never meet penstockd of another.
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
    """The site of --site, else that of $PENSTOCK_SITE, else the one that is installed in the usual place.

    None where there is none, and with an empty --site.
    """
    if named is not None:
        return load(named) if named else None
    told = os.environ.get(wellknown.ENV_SITE, "")
    view = view_of(told or wellknown.SITE_FILE)
    if os.access(view, os.R_OK):
        return load(view)
    return load(told) if told else None


def load(name: str) -> SiteView:
    """The site of this very file, or one line that says what is wrong with it."""
    if name.endswith(_YAML):
        return _from_site_file(name)
    from penstock.sbatch import siteviews  # here, because a check without a site does without it

    return siteviews.read(name)


def view_of(name: str) -> str:
    """Where `penstock apply` puts the view of that site file."""
    return f"{name.rpartition('.')[0]}.json" if name.endswith(_YAML) else name


def _from_site_file(name: str) -> SiteView:
    from pathlib import Path

    from penstock.install import facts
    from penstock.site import daemonsettings, loader

    site = loader.load(Path(name))
    try:
        known = facts.nodes_and_release(site)
    except errors.UsageError as error:
        hint = "Nodes are sized by Kubernetes here: give the view (JSON) that `penstock apply` wrote."
        raise errors.UsageError(f"{name}: {error.message}", hint=error.hint or hint) from error
    return daemonsettings.view(site, known.groups, release=known.release, conf=known.conf)


def slurm_conf() -> str:
    """The slurm.conf to ask Slurm with."""
    named = bool(os.environ.get(wellknown.ENV_SITE))
    own = "" if named else os.environ.get(wellknown.ENV_SLURM_CONF, "")
    return own or str(_site().get("slurm_conf") or DEFAULT_CONF)


def socket() -> str:
    """Where penstockd listens."""
    return os.environ.get(wellknown.ENV_SOCKET) or str(_site().get("socket") or DEFAULT_SOCKET)


def results() -> str | None:
    """The folder of all jobs' results; None where the site keeps none."""
    return os.environ.get(wellknown.ENV_RESULTS) or str(_site().get("results") or "") or None


def _site() -> Mapping[str, Any]:
    """penstockd's settings there; nothing where no site is named and none installed."""
    told = os.environ.get(wellknown.ENV_SITE, "")
    name = told or wellknown.SITE_FILE
    view = view_of(name)
    if os.access(view, os.R_OK) and (found := load(view).penstockd):
        return found
    if not told and not os.access(name, os.R_OK):
        return {}
    from pathlib import Path

    from penstock.site import daemonsettings, loader  # here, because the view makes it unnecessary

    return daemonsettings.places(loader.load(Path(name)))
