"""Which site a check is about, and what must be known of it.

Of a site that is installed that is its small view (JSON), which `penstock apply` has written beside the site
file: it says what is in force, every user may read it, and that takes a tenth of the time.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock import errors, wellknown

if TYPE_CHECKING:
    from penstock.model.siteview import SiteView

_YAML = (".yaml", ".yml")


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
    from penstock.site import daemons, loading

    site = loading.load(Path(name))
    try:
        known = facts.nodes_and_release(site)
    except errors.UsageError as error:
        hint = "Nodes are sized by Kubernetes here: give the view (JSON) that `penstock apply` wrote."
        raise errors.UsageError(f"{name}: {error.message}", hint=error.hint or hint) from error
    return daemons.view(site, known.groups, release=known.release, conf=known.conf)
