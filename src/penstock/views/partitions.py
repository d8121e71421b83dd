"""Partitions that the view of a site does not name: somebody may have added them to slurm.conf since, or
slurm.conf is on another host. So Slurm is asked, once, for as long as a person waits gladly.
"""

from __future__ import annotations

import asyncio
import functools
import os

import msgspec

from penstock import errors, wellknown
from penstock.model.siteview import PartitionView, SiteView
from penstock.slurm import describing

SECONDS = 2.0


@functools.cache
def live() -> tuple[str, ...] | None:
    """Names of all partitions; None when Slurm does not answer."""
    conf = os.environ.get(wellknown.ENV_SLURM_CONF, "")
    try:
        return asyncio.run(describing.partition_names(conf, within=SECONDS)) or None
    except errors.SlurmError:
        return None


def completed(site: SiteView) -> SiteView | None:
    """The site with the partitions that Slurm has; None when it does not say."""
    names = live()
    if names is None:
        return None
    more = {name: PartitionView(bridged=False, whole=False) for name in names}
    return msgspec.structs.replace(site, partitions=more | site.partitions)
