"""What the compiler has to say: one record a finding, all of them, with the place and what to do.

Severity is a promise. *error*: sbatch, slurmctld or penstock will reject the job. *warning*: it will be
accepted, and something in it will not do what its writer thinks. *info*: worth knowing, nothing to fix.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

Severity = Literal["error", "warning", "info"]

MOST_HINTED: Final = 200
"""A guess at what was meant takes a millisecond, and a script may have ten thousand mistakes."""


class Diagnostic(msgspec.Struct, frozen=True):
    """One finding; `line` and `column` count from 1, line 0 means "not in the script"."""

    severity: Severity
    line: int
    column: int
    code: str
    message: str
    hint: str = ""


class Place(msgspec.Struct, frozen=True):
    """Where something was written: a position in the script, or a word of the environment or command line."""

    line: int = 0
    column: int = 0
    origin: str = ""


class Report:
    """Collects findings while a script is compiled; nothing stops at the first one."""

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
        """Whether so much was found that looking for what was meant costs more than it helps."""
        return len(self.diagnostics) > MOST_HINTED

    @property
    def failed(self) -> bool:
        return any(found.severity == "error" for found in self.diagnostics)

    def without(self, silenced: Iterable[str]) -> tuple[Diagnostic, ...]:
        """Everything in the order of the script, minus warnings whose code was silenced; errors stay."""
        quiet = set(silenced)
        kept = [found for found in self.diagnostics if found.severity == "error" or found.code not in quiet]
        return tuple(sorted(kept, key=lambda found: (found.line, found.column)))
