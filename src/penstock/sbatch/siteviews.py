"""Reading the small view of a site, as JSON or TOML: what `penstock apply` writes, or a person by hand."""

from __future__ import annotations

import msgspec

from penstock import errors
from penstock.model.siteview import SiteView
from penstock.sbatch.values import times
from penstock.sbatch.values.problem import Problem


def read(name: str) -> SiteView:
    """The site, or one line that says what is wrong with its file."""
    try:
        with open(name, "rb") as file:  # noqa: PTH123 - pathlib costs 3 ms of start-up
            data = file.read()
    except OSError as error:
        raise errors.UsageError(f"cannot read the site file {name}: {error.strerror}") from error
    decode = msgspec.toml.decode if name.endswith(".toml") else msgspec.json.decode
    try:
        view = decode(data, type=SiteView)
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
