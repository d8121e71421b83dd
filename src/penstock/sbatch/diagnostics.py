"""Diagnostics of the compiler, with place and hint.

*error*: sbatch, slurmctld or Penstock will reject the job. *warning*: it will be accepted, but something in
it does not do what its author probably expects. *info*: nothing to fix.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

Severity = Literal["error", "warning", "info"]

MOST_HINTED: Final = 200
"""Finding the closest spelling takes a millisecond, and a script may have ten thousand mistakes."""


class Diagnostic(msgspec.Struct, frozen=True):
    """`line` and `column` count from 1; line 0 means "not in the script"."""

    severity: Severity
    line: int
    column: int
    code: str
    message: str
    hint: str = ""


class Place(msgspec.Struct, frozen=True):
    """A position in the script, or a word of the environment or command line."""

    line: int = 0
    column: int = 0
    origin: str = ""


class Report:
    """Collects all diagnostics while a script is compiled."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []

    def error(self, place: Place, code: str, message: str, hint: str = "") -> None:
        self._add("error", place, code, message, hint)

    def warning(self, place: Place, code: str, message: str, hint: str = "") -> None:
        self._add("warning", place, code, message, hint)

    def info(self, place: Place, code: str, message: str, hint: str = "") -> None:
        self._add("info", place, code, message, hint)

    def _add(self, severity: Severity, place: Place, code: str, message: str, hint: str) -> None:
        told = f"{place.origin}: {message}" if place.origin else message
        self.diagnostics.append(Diagnostic(severity, place.line, place.column, code, told, hint))

    @property
    def long_enough(self) -> bool:
        """Whether there are so many diagnostics that hints cost more than they help."""
        return len(self.diagnostics) > MOST_HINTED

    @property
    def failed(self) -> bool:
        return any(found.severity == "error" for found in self.diagnostics)

    def without(self, silenced: Iterable[str]) -> tuple[Diagnostic, ...]:
        """Diagnostics in the order of the script, without those with a silenced code; errors stay."""
        quiet = set(silenced)
        kept = [found for found in self.diagnostics if found.severity == "error" or found.code not in quiet]
        return tuple(sorted(kept, key=lambda found: (found.line, found.column)))
