"""Mistakes in a site file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from penstock import errors, wording

Place = tuple[str | int, ...]
SHOWN = 50


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Finding:
    """A mistake; line and column count from 1."""

    line: int
    column: int
    key: str
    """Dotted key, such as partitions.gpu.mode; empty for the file itself."""
    message: str
    remedy: str

    def shown(self, name: str) -> str:
        """One line in the format of compilers."""
        where = f"{self.key}: " if self.key else ""
        return f"{name}:{self.line}:{self.column}: {where}{self.message}; {self.remedy}"


class SiteError(errors.UsageError):
    """All mistakes of a site file."""

    def __init__(self, name: str, findings: Iterable[Finding]) -> None:
        self.findings: Sequence[Finding] = sorted(set(findings))
        lines = [finding.shown(name) for finding in self.findings[:SHOWN]]
        if len(self.findings) > SHOWN:
            lines.append(f"… and {len(self.findings) - SHOWN} more")
        super().__init__(
            f"{wording.many(len(self.findings), 'mistake')} in {name}\n" + "\n".join(lines),
            hint="docs/reference/site.md describes every key.",
        )


def dotted(place: Place) -> str:
    return ".".join(str(part) for part in place if part != "[key]")
