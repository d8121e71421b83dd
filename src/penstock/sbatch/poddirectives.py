"""The #K8S_ directives of a script that is about to run."""

from __future__ import annotations

from collections.abc import Collection

from penstock import errors
from penstock.model.jobspec import PodSpec
from penstock.sbatch import diagnostics, k8s, source


def pod_of(script: bytes, *, forbidden: Collection[str] = ()) -> PodSpec:
    """Parse the directives of an accepted script. Raises UsageError for the first invalid line."""
    lines = source.read(script, diagnostics.Report()).k8s
    report = diagnostics.Report()
    found, provenance = k8s.parse(lines, report)
    for diagnostic in report.without(()):
        if diagnostic.severity == "error":
            raise errors.UsageError(f"line {diagnostic.line}: {diagnostic.message}", hint=diagnostic.hint)
    for origin in provenance.values():
        if origin.name.removeprefix(source.K8S_MAGIC) in forbidden:
            raise errors.UsageError(f"line {origin.line}: {origin.name} is not allowed at this site")
    return found
