"""Where slurm.conf, penstockd's socket and the results are, of the site that a command is about.

$PENSTOCK_SITE says which site that is, else the installed one. $PENSTOCK_SOCKET and $PENSTOCK_RESULTS come
first; $SLURM_CONF counts where no site is named, so that jobs of one Slurm never meet penstockd of another.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock import wellknown
from penstock.views import installation

DEFAULT_CONF = "/etc/slurm/slurm.conf"
DEFAULT_SOCKET = "/run/penstock/penstockd.sock"


def slurm_conf() -> str:
    """The slurm.conf to ask Slurm with."""
    named = bool(os.environ.get(wellknown.ENV_SITE))
    own = "" if named else os.environ.get(wellknown.ENV_SLURM_CONF, "")
    return own or str(_site().get("slurm_conf") or DEFAULT_CONF)


def socket() -> str:
    """Where penstockd listens."""
    return os.environ.get(wellknown.ENV_SOCKET) or str(_site().get("socket") or DEFAULT_SOCKET)


def results() -> Path | None:
    """The folder of all jobs' results; None where the site keeps none."""
    found = os.environ.get(wellknown.ENV_RESULTS) or str(_site().get("results") or "")
    return Path(found) if found else None


def _site() -> Mapping[str, Any]:
    """penstockd's settings there; nothing where no site is named and none installed."""
    told = os.environ.get(wellknown.ENV_SITE, "")
    view = installation.view_of(told or wellknown.SITE_FILE)
    if os.access(view, os.R_OK):
        found = installation.load(view).penstockd
        if found:
            return found
    name = told or wellknown.SITE_FILE
    if not told and not os.access(name, os.R_OK):
        return {}
    return _of_file(name)


def _of_file(name: str) -> Mapping[str, Any]:
    from penstock.site import daemons, loading  # here, because the view makes it unnecessary

    return daemons.penstockd(loading.load(Path(name)), slurm_uid=0)
