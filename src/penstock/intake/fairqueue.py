"""Fair queueing: the user who was served least recently is next, however many files each has."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Turns(Generic[Item]):
    """Round robin over owners, with a limit for each."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._served: dict[Hashable, int] = {}
        self._turn = 0

    def order(self, queues: dict[int, deque[Item]], busy: dict[int, int]) -> Iterable[Item]:
        """Pop items, owners in turn, up to the limit; the caller counts those under way in `busy`."""
        while True:
            free = [owner for owner, queue in queues.items() if queue and busy.get(owner, 0) < self.limit]
            if not free:
                return
            owner = min(free, key=lambda one: self._served.get(one, 0))
            self._turn += 1
            self._served[owner] = self._turn
            yield queues[owner].popleft()
