"""Objects by what is in them: a node's pods, a job's pods. Kept up to date with every change, so that nobody
has to look through thousands of objects for a few.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")
Values = Callable[[T], Iterable[Hashable]]
"""Under which values an object is to be found."""


class Index(Generic[T]):
    """The objects of one picture by one of their properties."""

    def __init__(self, values: Values[T]) -> None:
        self._values = values
        self._found: dict[Hashable, dict[str, T]] = {}

    def change(self, key: str, before: T | None, after: T | None) -> None:
        """The object of that key is another one now; None when there was none, or is none any more."""
        values = set(self._values(after)) if after is not None else set()
        for value in set(self._values(before)) - values if before is not None else ():
            found = self._found[value]
            del found[key]
            if not found:
                del self._found[value]
        for value in values:
            self._found.setdefault(value, {})[key] = after  # type: ignore[assignment]  # None has no values

    def of(self, value: Hashable) -> tuple[T, ...]:
        return tuple(self._found.get(value, {}).values())
