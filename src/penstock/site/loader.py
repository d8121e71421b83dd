"""Reads a site file into a Site, or reports all its mistakes at once.

A mistake in one key must not hide others: what the schema refuses is removed, and the rest is checked.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from penstock import errors
from penstock.site import crosschecks, errortexts, yamlreader
from penstock.site.findings import Finding, Place, SiteError
from penstock.site.schema import Site

_ROUNDS = 12


def load(path: Path) -> Site:
    """Read this site file. Raises SiteError with all mistakes."""
    try:
        with path.open("rb") as stream:
            content = stream.read(yamlreader.MAX_BYTES + 1)
    except OSError as error:
        raise errors.UsageError(
            f"cannot read the site file {path}: {error.strerror}", hint="`penstock init` writes a first one."
        ) from error
    return loads(content, name=str(path))


def loads(content: bytes, *, name: str = "site.yaml") -> Site:
    try:
        document = yamlreader.read(content)
    except yamlreader.Unreadable as error:
        raise SiteError(name, [error.finding]) from error
    site, findings = _validate(document)
    findings += document.findings
    if site is not None:
        checked = crosschecks.check(site, document)
        findings += [found for found in checked if not _explained(found, findings)]
    if findings or site is None:
        raise SiteError(name, findings)
    return site


def _validate(document: yamlreader.Document) -> tuple[Site | None, list[Finding]]:
    """The site without its invalid parts (None if nothing is left), and the mistakes."""
    data = copy.deepcopy(document.data)
    findings: list[Finding] = []
    removed: set[Place] = set()
    for _ in range(_ROUNDS):
        try:
            return Site.model_validate(data), findings
        except ValidationError as error:
            problems = error.errors(include_url=False)
            places: list[Place] = [tuple(problem["loc"]) for problem in problems]
            for place, problem in zip(places, problems, strict=True):
                finding = errortexts.finding(problem, document)
                if place not in removed and finding not in findings:
                    findings.append(finding)
            removed.update(places)
            done = [_remove(data, place) for place in places]
            if not all(done):
                break
    return None, findings


def _remove(data: Any, place: Place) -> bool:
    """Remove an invalid value, or the mapping that lacks a key; False if nothing would be left."""
    parts = [part for part in place if part != "[key]"]
    if parts == ["cluster"] and isinstance(data, dict):
        data["cluster"] = "unnamed"
        return True
    parent = data
    for part in parts[:-1]:
        if not _has(parent, part):
            return True
        if isinstance(parent[part], tuple):
            parent[part] = list(parent[part])
        parent = parent[part]
    if parts and _has(parent, parts[-1]):
        del parent[parts[-1]]
        return True
    return len(parts) > 1 and _remove(data, tuple(parts[:-1]))


def _has(parent: Any, part: str | int) -> bool:
    if isinstance(parent, dict):
        return part in parent
    return isinstance(parent, list) and isinstance(part, int) and part < len(parent)


def _explained(found: Finding, others: list[Finding]) -> bool:
    """Whether the finding is a consequence of another one."""
    for other in others:
        parent, _, name = other.key.rpartition(".")
        if other.key and (found.key == other.key or found.key.startswith(f"{other.key}.")):
            return True
        if found.key == parent and f"`{name}`" in found.message:
            return True
    return False
