"""Regular expressions that are compiled on first use.

Compiling all forty of this package takes longer than the rest of `penstock validate` for a script, which
needs only a few of them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator


class Pattern:
    """Has the methods of re.Pattern."""

    def __init__(self, source: str, flags: int = 0) -> None:
        self._source = source
        self._flags = flags

    @functools.cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self._source, self._flags)

    def match(self, text: str, position: int = 0) -> re.Match[str] | None:
        return self._compiled.match(text, position)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        return self._compiled.fullmatch(text)

    def search(self, text: str, position: int = 0) -> re.Match[str] | None:
        return self._compiled.search(text, position)

    def finditer(self, text: str, position: int = 0) -> Iterator[re.Match[str]]:
        return self._compiled.finditer(text, position)

    def sub(self, replacement: str, text: str) -> str:
        return self._compiled.sub(replacement, text)
