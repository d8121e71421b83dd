"""Reads the view of a site, as JSON or TOML, written by `penstock apply` or by hand."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock import errors
from penstock.model.siteview import SiteView
from penstock.sbatch.values import times
from penstock.sbatch.values.problem import Problem

_SITES = (
    *("cluster", "default_image", "forbidden_directives", "gpu_resources"),
    *("kill_wait", "namespace_pattern", "shared_mounts"),
)
_PARTITIONS = ("image", "allowed_tolerations", "allowed_node_labels")


def read(name: str) -> SiteView:
    """Read the view. Raises UsageError with one line."""
    try:
        with open(name, "rb") as file:  # noqa: PTH123 - pathlib costs 3 ms of start-up
            data = file.read()
    except OSError as error:
        raise errors.UsageError(f"cannot read the site file {name}: {error.strerror}") from error
    try:
        view = decode(data, toml=name.endswith(".toml"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.UsageError(
            f"{name}: {error}", hint="see docs/compatibility.md, section Site file"
        ) from error
    _check_times(name, view)
    return view


def decode(data: bytes, *, toml: bool = False) -> SiteView:
    """Decode the content of such a file. Raises msgspec's errors."""
    document = msgspec.toml.decode(data) if toml else msgspec.json.decode(data)
    if isinstance(document, dict) and "pods" not in document:
        document = _with_policy(document)
    return msgspec.convert(document, SiteView)


def _with_policy(document: dict[str, Any]) -> dict[str, Any]:
    """Move top-level keys to `pods`: views by hand, and those of older releases, have no `pods`."""
    partitions: dict[str, Any] = {}
    listed = document.get("partitions")
    for name, each in listed.items() if isinstance(listed, dict) else ():
        if isinstance(each, dict):
            trusted, bridged = each.pop("trusted", False), each.pop("bridged", True)
            own = _moved(each, _PARTITIONS) | {"mode": "trust" if msgspec.convert(trusted, bool) else "check"}
            partitions |= {name: own} if msgspec.convert(bridged, bool) else {}
    pods = _moved(document, _SITES) | {"partitions": partitions, "namespace_quota": {}}
    pods["allowed_images"] = document.pop("registries", ())
    return document | {"pods": pods}


def _moved(keys: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: keys.pop(name) for name in names if name in keys}


def _check_times(name: str, view: SiteView) -> None:
    """Check times in a view written by hand; those of a site file are checked when it is read."""
    for partition, each in view.partitions.items():
        try:
            times.limit(each.max_time or "UNLIMITED")
        except Problem as problem:
            where = f"{name}: max_time of partition {partition}"
            raise errors.UsageError(f"{where}: {problem.message}", hint=problem.hint) from problem
