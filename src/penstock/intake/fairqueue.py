"""Whose turn is it? The one who has waited longest since being served, however many files each has."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Turns(Generic[Item]):
    """Waiting items in a line per owner; owners are served in turn, with a limit for each."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._served: dict[Hashable, int] = {}
        self._turn = 0

    def order(self, lines: dict[int, deque[Item]], busy: dict[int, int]) -> Iterable[Item]:
        """Take items from the lines, one from each owner in turn, until all are empty or at their limit.

        `busy` counts what each owner has under way; the caller adds to it what it takes up.
        """
        while True:
            free = [owner for owner, line in lines.items() if line and busy.get(owner, 0) < self.limit]
            if not free:
                return
            owner = min(free, key=lambda one: self._served.get(one, 0))
            self._turn += 1
            self._served[owner] = self._turn
            yield lines[owner].popleft()
