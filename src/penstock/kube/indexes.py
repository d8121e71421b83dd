"""Objects by a property, such as the pods of a job, so that callers need not search thousands of objects."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")
Values = Callable[[T], Iterable[Hashable]]  # the index values of an object


class Index(Generic[T]):
    """The objects of one cache by one property."""

    def __init__(self, values: Values[T]) -> None:
        self._values = values
        self._found: dict[Hashable, dict[str, T]] = {}

    def change(self, key: str, before: T | None, after: T | None) -> None:
        """Replace the object of that key; None for no object."""
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
