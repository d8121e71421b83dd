"""Reading the site for a check: a site file (YAML), or the small view of one as JSON or TOML.

`penstock apply` writes that view beside penstockd's settings: it is read ten times faster than a site file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from penstock import errors
from penstock.model.siteview import SiteView
from penstock.sbatch.values import times
from penstock.sbatch.values.problem import Problem


def load(name: str) -> SiteView:
    """The site, or one line that says what is wrong with its file."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return _from_site_file(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise errors.UsageError(f"cannot read the site file {name}: {error.strerror}") from error
    try:
        view = msgspec.convert(_parse(data, path.suffix), SiteView)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.UsageError(
            f"{name}: {error}", hint="see docs/compatibility.md, section Site file"
        ) from error
    _check_times(name, view)
    return view


def _check_times(name: str, view: SiteView) -> None:
    """Of a view that was written by hand; those of a site file are checked as it is read."""
    for partition, each in view.partitions.items():
        try:
            times.limit(each.max_time or "UNLIMITED")
        except Problem as problem:
            where = f"{name}: max_time of partition {partition}"
            raise errors.UsageError(f"{where}: {problem.message}", hint=problem.hint) from problem


def _parse(data: bytes, suffix: str) -> Any:
    if suffix == ".toml":
        return msgspec.toml.decode(data)
    return msgspec.json.decode(data)


def _from_site_file(path: Path) -> SiteView:
    from penstock.install import facts
    from penstock.site import daemons, loading

    site = loading.load(path)
    try:
        known = facts.nodes_and_release(site)
    except errors.UsageError as error:
        hint = "Nodes are sized by Kubernetes here: give the view (JSON) that `penstock apply` wrote."
        raise errors.UsageError(f"{path}: {error.message}", hint=error.hint or hint) from error
    return daemons.view(site, known.groups, release=known.release, conf=known.conf)
