"""Regular expressions that are compiled when first used.

Compiling the forty or so of this package takes longer than everything else `penstock validate` does for
one script, and a script needs a handful of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator


class Pattern:
    """A regular expression by its source; the methods are those of re.Pattern."""

    __slots__ = ("_compiled", "_flags", "_source")

    def __init__(self, source: str, flags: int = 0) -> None:
        self._source = source
        self._flags = flags
        self._compiled: re.Pattern[str] | None = None

    def _ready(self) -> re.Pattern[str]:
        if self._compiled is None:
            self._compiled = re.compile(self._source, self._flags)
        return self._compiled

    def match(self, text: str, position: int = 0) -> re.Match[str] | None:
        return self._ready().match(text, position)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        return self._ready().fullmatch(text)

    def search(self, text: str, position: int = 0) -> re.Match[str] | None:
        return self._ready().search(text, position)

    def finditer(self, text: str, position: int = 0) -> Iterator[re.Match[str]]:
        return self._ready().finditer(text, position)

    def sub(self, replacement: str, text: str) -> str:
        return self._ready().sub(replacement, text)
